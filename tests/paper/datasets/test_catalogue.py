"""The catalog: every data set from small files in the published formats, and from the real ones."""

import gzip
import lzma
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from dsvnp.paper.datasets.catalogue import (
    CIFAR10_TRAIN,
    IMAGES,
    SARCOS_EXCERPT,
    SARCOS_TEST,
    SARCOS_TRAIN,
    SCM20D,
    TABLES,
    load_images,
    load_table,
)
from dsvnp.paper.datasets.locate import ChecksumError, MissingDataError, find_data_file
from dsvnp.paper.datasets.matlab import read_mat

RNG = np.random.default_rng(0)
SARCOS_ROWS = RNG.normal(size=(9, 28)).round(6)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def write_sarcos_mat(directory: Path, name: str, rows: np.ndarray) -> None:
    (directory / "sarcos").mkdir(exist_ok=True)
    scipy.io.savemat(directory / "sarcos" / f"{name}.mat", {name: rows})


def write_sarcos_piece(directory: Path, piece: str, rows: np.ndarray) -> None:
    lines = [",".join(map(repr, row)) for row in [list(range(28)), *rows.tolist()]]
    write(directory / f"sarcos/sarcos_inv_partial_rows_{piece}.csv", "\n".join(lines).encode())


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    write(path, gzip.compress(header + array.tobytes()))


def cifar_bytes(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


class TestSarcos:
    def test_excerpt_and_test_rows_without_repeats_in_order(self, tmp_path):
        write_sarcos_piece(tmp_path, "a", SARCOS_ROWS[[4, 0]])
        write_sarcos_piece(tmp_path, "b", SARCOS_ROWS[[5, 4, 1]])
        write_sarcos_mat(tmp_path, "sarcos_inv_test", SARCOS_ROWS[[1, 2, 0]])
        table = load_table("sarcos", tmp_path, verify=False)
        rows = SARCOS_ROWS[[4, 0, 5, 1, 2]]
        np.testing.assert_array_equal(table.x, rows[:, :21])
        np.testing.assert_array_equal(table.y, rows[:, 21:])
        assert table.note == "5 distinct rows of the 48933 published"
        assert (table.x_names[0], table.x_names[7], table.x_names[20]) == (
            "position_1",
            "velocity_1",
            "acceleration_7",
        )
        assert table.y_names == tuple(f"torque_{i}" for i in range(1, 8))

    def test_the_whole_file_replaces_the_excerpt(self, tmp_path):
        write_sarcos_piece(tmp_path, "a", SARCOS_ROWS[[8]])
        write_sarcos_mat(tmp_path, "sarcos_inv", SARCOS_ROWS[:6])
        write_sarcos_mat(tmp_path, "sarcos_inv_test", SARCOS_ROWS[4:7])
        np.testing.assert_array_equal(load_table("sarcos", tmp_path, verify=False).x, SARCOS_ROWS[:7, :21])

    def test_the_whole_file_is_checked_by_its_git_id(self, tmp_path):
        write_sarcos_mat(tmp_path, "sarcos_inv", SARCOS_ROWS)
        with pytest.raises(ChecksumError, match="expected git 687b7aaa5faf5a9c67fc6655fd59fd8b4539ad55,"):
            load_table("sarcos", tmp_path)

    def test_with_nothing_there_the_whole_file_is_asked_for(self, tmp_path):
        with pytest.raises(MissingDataError, match=r"sarcos_inv\.mat.*--data-dir.*gaussianprocess\.org"):
            load_table("sarcos", tmp_path)

    def test_with_half_an_excerpt_the_other_piece_is_asked_for(self, tmp_path):
        write_sarcos_piece(tmp_path, "a", SARCOS_ROWS)
        with pytest.raises(MissingDataError, match=r"partial_rows_b\.csv.*sarcos_inv\.mat, which replaces"):
            load_table("sarcos", tmp_path, verify=False)


class TestArffTables:
    @pytest.mark.parametrize(
        ("name", "path", "dim_x", "dim_y", "published"),
        [
            ("water-quality", "water-quality/wq.arff", 16, 14, 1060),
            ("wq", "water-quality/wq.arff", 16, 14, 1060),
            ("scm20d", "scm20d/scm20d.arff", 61, 16, 8966),
        ],
    )
    def test_inputs_come_before_outputs(self, tmp_path, name, path, dim_x, dim_y, published):
        rows = np.arange(3.0 * (dim_x + dim_y)).reshape(3, -1)
        header = "".join(f"@attribute a{i} numeric\n" for i in range(dim_x + dim_y))
        data = "".join(",".join(map(str, row)) + "\n" for row in rows)
        write(tmp_path / f"{path}.xz", lzma.compress(f"@relation r\n{header}@data\n{data}".encode()))
        table = load_table(name, tmp_path, verify=False)
        np.testing.assert_array_equal(table.x, rows[:, :dim_x])
        np.testing.assert_array_equal(table.y, rows[:, dim_x:])
        assert table.y_names == tuple(f"a{i}" for i in range(dim_x, dim_x + dim_y))
        assert len(table.x_names) == dim_x
        assert table.note == f"3 rows of the {published} published"
        assert table.name == ("water-quality" if name == "wq" else name)


class TestImages:
    @pytest.mark.parametrize(
        ("name", "part", "prefix"),
        [
            ("mnist", "train", "mnist/train"),
            ("mnist", "test", "mnist/t10k"),
            ("fashion-mnist", "test", "fashion-mnist/t10k"),
            ("kmnist", "test", "kmnist/t10k"),
        ],
    )
    def test_idx_sets(self, tmp_path, name, part, prefix):
        images, labels = RNG.integers(0, 256, (3, 28, 28), np.uint8), np.array([7, 0, 9], np.uint8)
        write_idx(tmp_path / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", labels)
        got = load_images(name, tmp_path, part, verify=False)
        assert got.name == name
        assert len(got.class_names) == 10
        np.testing.assert_array_equal(got.images, images[:, None])
        np.testing.assert_array_equal(got.labels, labels)
        with pytest.raises(ChecksumError, match=r"images-idx3-ubyte\.gz: expected sha256 .*verify=False"):
            load_images(name, tmp_path, part)

    def test_images_without_their_labels(self, tmp_path):
        write_idx(tmp_path / "mnist/t10k-images-idx3-ubyte.gz", np.zeros((3, 28, 28), np.uint8))
        write_idx(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", np.zeros(2, np.uint8))
        with pytest.raises(ValueError, match="expected one label per image, got 2 labels for 3 images"):
            load_images("mnist", tmp_path, "test", verify=False)

    def test_cifar10_batches_in_order(self, tmp_path):
        images = RNG.integers(0, 256, (10, 3, 32, 32), np.uint8)
        labels = np.arange(10, dtype=np.uint8)
        for i, file in enumerate(CIFAR10_TRAIN):
            pair = slice(2 * i, 2 * i + 2)
            write(tmp_path / f"{file.path}.xz", lzma.compress(cifar_bytes(images[pair], labels[pair])))
        write(tmp_path / "cifar10/test_batch.bin", cifar_bytes(images[:3], labels[:3]))
        train, test = (load_images("cifar10", tmp_path, part, verify=False) for part in ("train", "test"))
        np.testing.assert_array_equal(train.images, images)
        np.testing.assert_array_equal(train.labels, labels)
        np.testing.assert_array_equal(test.images, images[:3])
        assert train.class_names[9] == "truck"
        with pytest.raises(ChecksumError, match="expected md5 803d5f7f4d78ea53de84dbe85f74fb6d, got"):
            load_images("cifar10", tmp_path, "test")

    def test_a_missing_cifar10_batch_is_named(self, tmp_path):
        for file in (*CIFAR10_TRAIN[:2], *CIFAR10_TRAIN[3:]):
            write(tmp_path / file.path, bytes(3073))
        with pytest.raises(MissingDataError, match=r"data_batch_3\.bin\.xz.*cifar-10-binary\.tar\.gz.*kriz"):
            load_images("cifar10", tmp_path, "train", verify=False)

    def test_svhn_whole_before_excerpt(self, tmp_path):
        images, labels = RNG.integers(0, 256, (4, 32, 32, 3), np.uint8), np.array([1, 2, 10, 9], np.uint8)
        (tmp_path / "svhn").mkdir()
        with pytest.raises(MissingDataError, match=r"test_32x32\.mat.*housenumbers"):
            load_images("svhn", tmp_path, "test")
        np.save(tmp_path / "svhn/svhn_test_first10000_images.npy", images[:2])
        np.save(tmp_path / "svhn/svhn_test_first10000_labels.npy", labels[:2])
        excerpt = load_images("svhn", tmp_path, "test", verify=False)
        variables = {"X": images.transpose(1, 2, 3, 0), "y": labels[:, None]}
        scipy.io.savemat(tmp_path / "svhn/test_32x32.mat", variables)
        whole = load_images("svhn", tmp_path, "test", verify=False)
        np.testing.assert_array_equal(whole.images, images.transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(whole.labels, [1, 2, 0, 9])
        np.testing.assert_array_equal(excerpt.images, whole.images[:2])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


class TestDamage:
    """What the checksums do not guard, since verify=False, is refused by the name of the file."""

    def refused(self, load, name: str, *args, match: str) -> None:
        with pytest.raises(ValueError, match=match) as refusal:
            load(name, *args, verify=False)
        assert "\n" not in str(refusal.value)

    def test_sarcos(self, tmp_path):
        write_sarcos_mat(tmp_path, "sarcos_inv", SARCOS_ROWS)
        write_sarcos_mat(tmp_path, "sarcos_inv_test", SARCOS_ROWS[:, :27])
        match = r"sarcos_inv_test\.mat: expected 28 columns of numbers, got an array \[9, 27\]"
        self.refused(load_table, "sarcos", tmp_path, match=match)
        cut(tmp_path / "sarcos/sarcos_inv.mat")
        self.refused(load_table, "sarcos", tmp_path, match=r"sarcos_inv\.mat: expected a MATLAB file")

    def test_arff(self, tmp_path):
        write(tmp_path / "water-quality/wq.arff", b"@attribute \xff numeric\n@data\n1\n")
        self.refused(load_table, "wq", tmp_path, match=r"wq\.arff: 'utf-8' codec can't decode")

    def test_idx(self, tmp_path):
        write_idx(tmp_path / "mnist/t10k-images-idx3-ubyte.gz", np.zeros(3, np.uint8))
        match = r"images-idx3-ubyte\.gz: expected an idx array of uint8 with 3 axes, got one \[3\]"
        self.refused(load_images, "mnist", tmp_path, "test", match=match)

    def test_cifar10(self, tmp_path):
        write(tmp_path / "cifar10/test_batch.bin", bytes(3074))
        self.refused(load_images, "cifar10", tmp_path, "test", match=r"test_batch\.bin: expected a multiple")

    def test_svhn(self, tmp_path):
        (tmp_path / "svhn").mkdir()
        for kind, array in (("images", np.zeros((2, 32, 32, 3), np.uint8)), ("labels", np.ones(2))):
            np.save(tmp_path / f"svhn/svhn_test_first10000_{kind}.npy", array)
        cut(tmp_path / "svhn/svhn_test_first10000_labels.npy")
        self.refused(load_images, "svhn", tmp_path, "test", match=r"images\.npy, .*labels\.npy: expected a")
        scipy.io.savemat(tmp_path / "svhn/test_32x32.mat", {"X": np.zeros(3), "y": np.ones(3)})
        match = r"test_32x32\.mat: expected 3 SVHN images"
        self.refused(load_images, "svhn", tmp_path, "test", match=match)


class TestNames:
    def test_an_unknown_table(self, tmp_path):
        with pytest.raises(ValueError, match=r"unknown table 'Sarco'\. Did you mean 'sarcos'\?"):
            load_table("Sarco", tmp_path)

    def test_an_unknown_image_set(self, tmp_path):
        with pytest.raises(ValueError, match=r"unknown image set 'cifar-10'\. Did you mean 'cifar10'\?"):
            load_images("cifar-10", tmp_path, "test")

    def test_nothing_close(self, tmp_path):
        with pytest.raises(ValueError, match=r"unknown table 'zzz'\. Known: sarcos"):
            load_table("zzz", tmp_path)

    def test_a_part_that_is_not_there(self, tmp_path):
        with pytest.raises(ValueError, match=r"unknown part of svhn 'train'\. Known: test"):
            load_images("svhn", tmp_path, "train")

    def test_no_directory(self, monkeypatch):
        monkeypatch.delenv("DSVNP_DATA", raising=False)
        for load in (lambda: load_table("wq", None), lambda: load_images("mnist", None, "test")):
            with pytest.raises(MissingDataError, match="--data-dir"):
                load()

    def test_every_file_has_a_known_sum(self):
        for file in (SARCOS_TRAIN, SARCOS_TEST, *SARCOS_EXCERPT, SCM20D, *CIFAR10_TRAIN):
            assert "" in file.sums, file.path
        assert ".xz" in CIFAR10_TRAIN[0].sums
        assert set(TABLES) == {"sarcos", "water-quality", "wq", "scm20d"}
        assert set(IMAGES) == {"mnist", "fashion-mnist", "kmnist", "cifar10", "svhn"}


@pytest.fixture
def real_data():
    directory = Path(os.environ.get("DSVNP_DATA", ""))
    if not os.environ.get("DSVNP_DATA") or not directory.is_dir():
        pytest.skip("DSVNP_DATA names no directory of data sets")
    return directory


@pytest.mark.data
class TestRealData:
    def test_sarcos(self, real_data):
        if find_data_file(real_data, SARCOS_TRAIN):
            pytest.skip("this directory has the whole of SARCOS; the counts here are the excerpt's")
        table = load_table("sarcos", real_data)
        assert (table.x.shape, table.y.shape) == ((7684, 21), (7684, 7))
        assert table.note == "7684 distinct rows of the 48933 published"
        assert table.x[0, 0] == 0.052049
        assert table.y[0, -1] == 8.361074

    def test_a_matlab_file_is_read_as_scipy_reads_it(self, real_data):
        name = "sarcos_inv_test"
        expected = scipy.io.loadmat(real_data / f"sarcos/{name}.mat")[name]
        got = read_mat((real_data / f"sarcos/{name}.mat").read_bytes(), name)
        np.testing.assert_array_equal(got, expected)
        assert (got.shape, got.dtype) == ((4449, 28), expected.dtype)

    @pytest.mark.parametrize(("name", "shape"), [("wq", (1060, 16, 14)), ("scm20d", (8966, 61, 16))])
    def test_arff_tables(self, real_data, name, shape):
        table = load_table(name, real_data)
        assert (*table.x.shape, table.y.shape[1]) == shape
        assert np.isfinite(table.x).all()
        assert np.isfinite(table.y).all()

    def test_mnist(self, real_data):
        train, test = (load_images("mnist", real_data, part) for part in ("train", "test"))
        assert train.images.shape == (60000, 1, 28, 28)
        counts = [np.bincount(images.labels).tolist() for images in (train, test)]
        assert counts[0] == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert counts[1] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        assert train.images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # as commonly published

    @pytest.mark.parametrize("name", ["fashion-mnist", "kmnist"])
    def test_other_idx_sets(self, real_data, name):
        got = load_images(name, real_data, "test")
        assert got.images.shape == (10000, 1, 28, 28)
        assert np.bincount(got.labels).tolist() == [1000] * 10

    def test_cifar10_test(self, real_data):
        got = load_images("cifar10", real_data, "test")
        assert got.images.shape == (10000, 3, 32, 32)
        assert np.bincount(got.labels).tolist() == [1000] * 10
        assert got.class_names[got.labels[0]] == "cat"

    def test_cifar10_train(self, real_data):
        got = load_images("cifar10", real_data, "train")
        assert got.images.shape == (50000, 3, 32, 32)
        assert np.bincount(got.labels).tolist() == [5000] * 10
        means = got.images.mean(axis=(0, 2, 3)) / 255
        assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)  # as commonly published

    def test_svhn(self, real_data):
        got = load_images("svhn", real_data, "test")
        assert got.images.shape[1:] == (3, 32, 32)
        counts = np.bincount(got.labels[:10000]).tolist()
        assert counts == [684, 1968, 1590, 1104, 964, 909, 773, 767, 621, 620]
