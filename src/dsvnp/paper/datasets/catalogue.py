"""The data sets of the paper by name: which files each is made of, and how they become arrays."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dsvnp.naming import lookup
from dsvnp.paper.datasets.locate import DECOMPRESS, DataFile, data_dir, find_data_file, open_data_file
from dsvnp.paper.datasets.readers import (
    Bytes,
    Matrix,
    read_arff,
    read_cifar10_batch,
    read_csv_matrix,
    read_idx,
    read_mat,
    read_svhn_mat,
    read_svhn_npy,
)

# ---- files

# As `sha256sum` prints them, but for md5 (the sums published for CIFAR-10 and SVHN) and git blob ids.
_SUMS = {
    path: checksum
    for checksum, path in (
        line.split()
        for line in """\
git:687b7aaa5faf5a9c67fc6655fd59fd8b4539ad55  sarcos/sarcos_inv.mat
161a59b5c3b4f4b404584323f181607b2acbe620eb134dc720760dc3f38f5cec  sarcos/sarcos_inv_test.mat
7d896c75e7e51107dceff5cd5dd2a67c35e93d5b9468262bfdf816462a13dc7c  sarcos/sarcos_inv_partial_rows_a.csv
e04de668b14ca0466c2a26b6b7734b59ae4336cbe4998828c1f8592d668adcf0  sarcos/sarcos_inv_partial_rows_b.csv
4a0906b4a51bf52c986790ddaf261ba51faa3da9cffe823badabd88d38d252fe  water-quality/wq.arff
2261a94bff5cfb617dbd2e7fd2c17d15d45135103a081917d1358c2ad13a4bd2  scm20d/scm20d.arff
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609  mnist/train-images-idx3-ubyte.gz
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  mnist/train-images-idx3-ubyte
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c  mnist/train-labels-idx1-ubyte.gz
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  mnist/train-labels-idx1-ubyte
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6  mnist/t10k-images-idx3-ubyte.gz
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  mnist/t10k-images-idx3-ubyte
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6  mnist/t10k-labels-idx1-ubyte.gz
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  mnist/t10k-labels-idx1-ubyte
346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073  fashion-mnist/t10k-images-idx3-ubyte.gz
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  fashion-mnist/t10k-images-idx3-ubyte
67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5  fashion-mnist/t10k-labels-idx1-ubyte.gz
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  fashion-mnist/t10k-labels-idx1-ubyte
edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5  kmnist/t10k-images-idx3-ubyte.gz
76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e  kmnist/t10k-images-idx3-ubyte
20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c  kmnist/t10k-labels-idx1-ubyte.gz
a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6  kmnist/t10k-labels-idx1-ubyte
06e460f1ce2c2e2efcbaeffd85b204dbeb4ec46913e6e7fd57d290a9233a1f1b  cifar10/data_batch_1.bin.xz
955756180147ee5e0369b932a5eb37df5857eeee6ad265bb8fe0a7fd34f201e7  cifar10/data_batch_2.bin.xz
7f32353e46906f19dc6e95c2a609bfb799e61b520ebe4ccf26d26054adb1c1d8  cifar10/data_batch_3.bin.xz
dc8fc84440455b44ac7426e8d7808fad85a3fa9e478621987c664c66051426ee  cifar10/data_batch_4.bin.xz
a652fdc42ffbcd2f6f1932e7beea5efe55828a0988a695255be630991d7bff1b  cifar10/data_batch_5.bin.xz
f929019d55d570963b691debf645d728f7cffd3461049f58ccb3e255d073b3d3  cifar10/test_batch.bin.xz
md5:5dd7e06a14cb22eb9f671a540d1b7c25  cifar10/data_batch_1.bin
md5:5ea93a67294ea407fff1d09f752e9692  cifar10/data_batch_2.bin
md5:942cd6a4bcdd0dd3c604fbe906cb4421  cifar10/data_batch_3.bin
md5:ae636b3ba5c66a11e91e8cb52e771fcb  cifar10/data_batch_4.bin
md5:53f37980c15c3d472c316c40844f3f0d  cifar10/data_batch_5.bin
md5:803d5f7f4d78ea53de84dbe85f74fb6d  cifar10/test_batch.bin
md5:eb5a983be6a315427106f1b164d9cef3  svhn/test_32x32.mat
4902f87f6394eed8b6b0e34b61e6113cf61dacd664857ad0491a058439831c08  svhn/svhn_test_first10000_images.npy.xz
db9515ce5e81f67210c2105de79eb7d7fa44399628050e4033006810c07d71c3  svhn/svhn_test_first10000_images.npy
f56671d4022f82d6c9d3d8b11b6eecf35009eb09bc53066eb9c05bfa67489187  svhn/svhn_test_first10000_labels.npy
""".splitlines()
    )
}


def _file(path: str, origin: str) -> DataFile:
    known = {suffix: _SUMS.get(path + suffix) for suffix in DECOMPRESS}
    return DataFile(path, origin, {suffix: checksum for suffix, checksum in known.items() if checksum})


def _idx_files(prefix: str, origin: str) -> tuple[DataFile, DataFile]:
    return _file(f"{prefix}-images-idx3-ubyte", origin), _file(f"{prefix}-labels-idx1-ubyte", origin)


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
    """A multi-output regression data set.

    Attributes:
        name: The data set's name.
        x: Inputs [N, Dx].
        y: Outputs [N, Dy].
        x_names: The inputs' names.
        y_names: The outputs' names.
        note: How many of the published rows these are, to stand beside every result.
    """

    name: str
    x: Matrix
    y: Matrix
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    note: str


def load_table(name: str, directory: str | Path | None, *, verify: bool = True) -> DataTable:
    """Load a regression data set by its name in `TABLES`; None reads the directory in the variable `DSVNP_DATA`."""
    return lookup(name, TABLES, "table")(data_dir(directory), verify)


def _load_sarcos(directory: Path, verify: bool) -> DataTable:
    read = partial(open_data_file, directory, verify=verify)
    if _use_excerpt(directory, SARCOS_TRAIN, SARCOS_EXCERPT):
        train = [read_csv_matrix(read(file).decode())[1] for file in SARCOS_EXCERPT]
    else:
        train = [read_mat(read(SARCOS_TRAIN), "sarcos_inv").astype(np.float64)]
    test = read_mat(read(SARCOS_TEST), "sarcos_inv_test").astype(np.float64)
    rows = np.concatenate([*train, test])
    # Nearly all of the published test rows are training rows too: drop repeats, or a random split leaks.
    _, first = np.unique(rows, axis=0, return_index=True)
    rows = rows[np.sort(first)]
    return DataTable(
        name="sarcos",
        x=rows[:, :21].copy(),
        y=rows[:, 21:].copy(),
        x_names=tuple(f"{of}_{i}" for of in ("position", "velocity", "acceleration") for i in range(1, 8)),
        y_names=tuple(f"torque_{i}" for i in range(1, 8)),
        note=f"{len(rows)} distinct rows of the 48933 published",
    )


def _load_arff(
    name: str, file: DataFile, dim_x: int, published: int, directory: Path, verify: bool
) -> DataTable:
    names, rows = read_arff(open_data_file(directory, file, verify=verify).decode())
    return DataTable(
        name=name,
        x=rows[:, :dim_x].copy(),
        y=rows[:, dim_x:].copy(),
        x_names=tuple(names[:dim_x]),
        y_names=tuple(names[dim_x:]),
        note=f"{len(rows)} rows of the {published} published",
    )


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
    """A set of labelled images.

    Attributes:
        name: The data set's name.
        images: [N, C, H, W], 0 to 255.
        labels: [N], indices into `class_names`.
        class_names: What the labels stand for.
    """

    name: str
    images: Bytes
    labels: Bytes
    class_names: tuple[str, ...]


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


def _load_idx(prefix: str, origin: str, directory: Path, verify: bool) -> tuple[Bytes, Bytes]:
    images, labels = (
        read_idx(open_data_file(directory, file, verify=verify)).astype(np.uint8)
        for file in _idx_files(prefix, origin)
    )
    return images[:, None], labels  # [N, H, W] -> [N, 1, H, W]


def _load_cifar10(files: tuple[DataFile, ...], directory: Path, verify: bool) -> tuple[Bytes, Bytes]:
    # Decompressing is all of the time, and lzma lets go of the interpreter lock while it does.
    with ThreadPoolExecutor(len(files)) as pool:
        contents = pool.map(partial(open_data_file, directory, verify=verify), files)
        images, labels = zip(*map(read_cifar10_batch, contents), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _load_svhn(directory: Path, verify: bool) -> tuple[Bytes, Bytes]:
    if _use_excerpt(directory, SVHN_TEST, SVHN_EXCERPT):
        return read_svhn_npy(*(open_data_file(directory, file, verify=verify) for file in SVHN_EXCERPT))
    return read_svhn_mat(open_data_file(directory, SVHN_TEST, verify=verify))


_DIGITS = tuple("0123456789")
_CLOTHES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
_KANA = "o,ki,su,tsu,na,ha,ma,ya,re,wo"
_CIFAR10 = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
_ImageLoader = Callable[[Path, bool], tuple[Bytes, Bytes]]
IMAGES: Mapping[str, tuple[tuple[str, ...], Mapping[str, _ImageLoader]]] = {
    "mnist": (
        _DIGITS,
        {
            "train": partial(_load_idx, "mnist/train", _LECUN),
            "test": partial(_load_idx, "mnist/t10k", _LECUN),
        },
    ),
    "fashion-mnist": (
        tuple(_CLOTHES.split(",")),
        {"test": partial(_load_idx, "fashion-mnist/t10k", _ZALANDO)},
    ),
    "kmnist": (tuple(_KANA.split(",")), {"test": partial(_load_idx, "kmnist/t10k", _CODH)}),
    "cifar10": (
        tuple(_CIFAR10.split(",")),
        {"train": partial(_load_cifar10, CIFAR10_TRAIN), "test": partial(_load_cifar10, CIFAR10_TEST)},
    ),
    "svhn": (_DIGITS, {"test": _load_svhn}),
}

# ---- both


def _use_excerpt(directory: Path, whole: DataFile, excerpt: tuple[DataFile, ...]) -> bool:
    # With neither there, the whole file is the one to ask for.
    return find_data_file(directory, whole) is None and any(find_data_file(directory, f) for f in excerpt)
