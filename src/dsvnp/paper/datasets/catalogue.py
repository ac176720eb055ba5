"""The data sets of the paper by name: which files each is made of, and how they become arrays."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import numpy as np

from dsvnp.naming import lookup
from dsvnp.paper.datasets import readers
from dsvnp.paper.datasets.locate import DECOMPRESS, DataFile, data_dir, find_data_file, open_data_file
from dsvnp.paper.datasets.matlab import read_mat

Content = TypeVar("Content")

# ---- files

# As `sha256sum` prints them, but for md5 (the sums published for CIFAR-10 and SVHN) and git blob ids.
_LINES = files("dsvnp.paper.datasets").joinpath("checksums.txt").read_text(encoding="utf-8").splitlines()
_SUMS = {path: checksum for checksum, path in map(str.split, _LINES)}


def _file(path: str, origin: str) -> DataFile:
    known = {suffix: _SUMS.get(path + suffix) for suffix in DECOMPRESS}
    return DataFile(path, origin, {suffix: checksum for suffix, checksum in known.items() if checksum})


def _read(reader: Callable[..., Content], directory: Path, verify: bool, *files: DataFile) -> Content:
    """Read the content of files by a function, whose errors name them."""
    contents = [open_data_file(directory, file, verify=verify) for file in files]
    try:
        return reader(*contents)
    except ValueError as error:
        paths = ", ".join(str(find_data_file(directory, file)) for file in files)
        raise ValueError(f"{paths}: {error}") from error


_GPML = (
    "S. Vijayakumar and S. Schaal (LWPR, ICML 2000), with Rasmussen & Williams, Gaussian Processes for "
    "Machine Learning (2006): http://www.gaussianprocess.org/gpml/data/"
)
_MULAN = "with the Mulan multi-target data sets: http://mulan.sourceforge.net/datasets-mtr.html"
_LECUN = "Y. LeCun, C. Cortes and C. Burges: http://yann.lecun.com/exdb/mnist/"
_ZALANDO = "Zalando (arXiv:1708.07747): https://github.com/zalandoresearch/fashion-mnist"
_CODH = "ROIS-DS CODH (arXiv:1812.01718): https://github.com/rois-codh/kmnist"
_KRIZHEVSKY = "A. Krizhevsky, in cifar-10-binary.tar.gz: https://www.cs.toronto.edu/~kriz/cifar.html"
_NETZER = "Y. Netzer et al. (NIPS workshop 2011): http://ufldl.stanford.edu/housenumbers/"

SARCOS_TRAIN = _file("sarcos/sarcos_inv.mat", _GPML)
SARCOS_TEST = _file("sarcos/sarcos_inv_test.mat", _GPML)
SVHN_TEST = _file("svhn/test_32x32.mat", _NETZER)
# Where a whole file is not at hand, an excerpt stands in: 4044 rows of SARCOS' training file, and the first
# 10,000 digits of SVHN's test file, cut again from the full-number images.
SARCOS_EXCERPT = tuple(
    _file(f"sarcos/sarcos_inv_partial_rows_{piece}.csv", f"{_GPML} (as sarcos_inv.mat, which replaces this)")
    for piece in "ab"
)
SVHN_EXCERPT = tuple(
    _file(f"svhn/svhn_test_first10000_{kind}.npy", f"{_NETZER} (as test_32x32.mat, which replaces this)")
    for kind in ("images", "labels")
)
WATER_QUALITY = _file(
    "water-quality/wq.arff",
    f"S. Džeroski, D. Demšar and J. Grbović (Applied Intelligence 13(1), 2000), {_MULAN}",
)
SCM20D = _file(
    "scm20d/scm20d.arff",
    f"E. Spyromitros-Xioufis et al. (Machine Learning 104, 2016), {_MULAN} (the sum is of the export that "
    "begins with @relation 'x'; Mulan's own file differs from it in bytes)",
)
CIFAR10_TRAIN = tuple(_file(f"cifar10/data_batch_{i}.bin", _KRIZHEVSKY) for i in range(1, 6))
CIFAR10_TEST = (_file("cifar10/test_batch.bin", _KRIZHEVSKY),)

# ---- tables


@dataclass(frozen=True, eq=False)
class DataTable:
    """A multi-output regression data set."""

    name: str  # the data set's name
    x: readers.Matrix  # inputs [N, Dx]
    y: readers.Matrix  # outputs [N, Dy]
    x_names: tuple[str, ...]  # the inputs' names
    y_names: tuple[str, ...]  # the outputs' names
    note: str  # how many of the published rows these are, which every result states


def load_table(name: str, directory: str | Path | None, *, verify: bool = True) -> DataTable:
    """Load a regression data set by its name in `TABLES`; None reads the directory in the variable `DSVNP_DATA`."""
    return lookup(name, TABLES, "table")(data_dir(directory), verify)


def _load_sarcos(directory: Path, verify: bool) -> DataTable:
    if _use_excerpt(directory, SARCOS_TRAIN, SARCOS_EXCERPT):
        train = [_read(_sarcos_csv, directory, verify, file) for file in SARCOS_EXCERPT]
    else:
        train = [_read(partial(_sarcos_mat, "sarcos_inv"), directory, verify, SARCOS_TRAIN)]
    test = _read(partial(_sarcos_mat, "sarcos_inv_test"), directory, verify, SARCOS_TEST)
    rows = np.concatenate([*train, test])
    # Nearly all of the published test rows are training rows too: drop repeats, or a random split leaks.
    _, first = np.unique(rows, axis=0, return_index=True)
    rows = rows[np.sort(first)]
    names = [f"{of}_{i}" for of in ("position", "velocity", "acceleration", "torque") for i in range(1, 8)]
    return _table("sarcos", names, rows, 21, f"{len(rows)} distinct rows of the 48933 published")


def _sarcos_mat(variable: str, data: bytes) -> readers.Matrix:
    return _sarcos_rows(read_mat(data, variable).astype(np.float64))


def _sarcos_csv(data: bytes) -> readers.Matrix:
    return _sarcos_rows(readers.read_csv_matrix(data.decode())[1])


def _sarcos_rows(rows: readers.Matrix) -> readers.Matrix:
    if rows.ndim != 2 or rows.shape[1] != 28:
        raise ValueError(f"expected 28 columns of numbers, got an array {list(rows.shape)}")
    return rows


def _load_arff(
    name: str, file: DataFile, dim_x: int, published: int, directory: Path, verify: bool
) -> DataTable:
    names, rows = _read(lambda data: readers.read_arff(data.decode()), directory, verify, file)
    return _table(name, names, rows, dim_x, f"{len(rows)} rows of the {published} published")


def _table(name: str, names: Sequence[str], rows: readers.Matrix, dim_x: int, note: str) -> DataTable:
    x, y = rows[:, :dim_x].copy(), rows[:, dim_x:].copy()
    return DataTable(name, x, y, tuple(names[:dim_x]), tuple(names[dim_x:]), note)


_load_water_quality = partial(_load_arff, "water-quality", WATER_QUALITY, 16, 1060)
TABLES: Mapping[str, Callable[[Path, bool], DataTable]] = {
    "sarcos": _load_sarcos,
    "water-quality": _load_water_quality,
    "wq": _load_water_quality,
    "scm20d": partial(_load_arff, "scm20d", SCM20D, 61, 8966),
}

# ---- images


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A set of labelled images."""

    name: str  # the data set's name
    images: readers.Bytes  # [N, C, H, W], 0 to 255
    labels: readers.Bytes  # [N], indices into `class_names`
    class_names: tuple[str, ...]  # what the labels stand for


def load_images(name: str, directory: str | Path | None, part: str, *, verify: bool = True) -> ImageSet:
    """Load the part `train` or `test` of an image set in `IMAGES`; see `load_table` for the directory."""
    class_names, parts = lookup(name, IMAGES, "image set")
    images, labels = lookup(part, parts, f"part of {name}")(data_dir(directory), verify)
    if len(images) != len(labels):
        raise ValueError(
            f"{name}: expected one label per image, got {len(labels)} labels for {len(images)} images; "
            "are the files of the same part?"
        )
    return ImageSet(name, images, labels, class_names)


def _load_idx(prefix: str, origin: str, directory: Path, verify: bool) -> tuple[readers.Bytes, readers.Bytes]:
    images, labels = (
        _read(
            partial(readers.read_idx_bytes, num_axes=axes),
            directory,
            verify,
            _file(f"{prefix}-{what}-idx{axes}-ubyte", origin),
        )
        for what, axes in (("images", 3), ("labels", 1))
    )
    return images[:, None], labels  # [N, H, W] -> [N, 1, H, W]


def _load_cifar10(
    files: tuple[DataFile, ...], directory: Path, verify: bool
) -> tuple[readers.Bytes, readers.Bytes]:
    # Decompressing is all of the time, and lzma lets go of the interpreter lock while it does.
    with ThreadPoolExecutor(len(files)) as pool:
        batches = pool.map(partial(_read, readers.read_cifar10_batch, directory, verify), files)
        images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _load_svhn(directory: Path, verify: bool) -> tuple[readers.Bytes, readers.Bytes]:
    if _use_excerpt(directory, SVHN_TEST, SVHN_EXCERPT):
        return _read(readers.read_svhn_npy, directory, verify, *SVHN_EXCERPT)
    return _read(readers.read_svhn_mat, directory, verify, SVHN_TEST)


_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MNIST_FILES = {"train": "mnist/train", "test": "mnist/t10k"}
_CIFAR10_FILES = {"train": CIFAR10_TRAIN, "test": CIFAR10_TEST}
_ImageLoader = Callable[[Path, bool], tuple[readers.Bytes, readers.Bytes]]
IMAGES: Mapping[str, tuple[tuple[str, ...], Mapping[str, _ImageLoader]]] = {
    "mnist": (_DIGITS, {part: partial(_load_idx, file, _LECUN) for part, file in _MNIST_FILES.items()}),
    "fashion-mnist": (_CLOTHES, {"test": partial(_load_idx, "fashion-mnist/t10k", _ZALANDO)}),
    "kmnist": (_KANA, {"test": partial(_load_idx, "kmnist/t10k", _CODH)}),
    "cifar10": (_CIFAR10, {part: partial(_load_cifar10, parts) for part, parts in _CIFAR10_FILES.items()}),
    "svhn": (_DIGITS, {"test": _load_svhn}),
}

# ---- both


def _use_excerpt(directory: Path, whole: DataFile, excerpt: tuple[DataFile, ...]) -> bool:
    # With neither there, the whole file is the one to ask for.
    return find_data_file(directory, whole) is None and any(find_data_file(directory, f) for f in excerpt)
