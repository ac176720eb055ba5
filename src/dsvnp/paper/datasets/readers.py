"""The published formats, from bytes to arrays: idx, CIFAR binary, SVHN, ARFF and CSV; `matlab` has MATLAB's.

Every reader returns writable arrays in the machine's byte order, which torch takes.
"""

import io
import math
import re
import struct
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dsvnp.paper.datasets.matlab import read_mat

Bytes = npt.NDArray[np.uint8]
Matrix = npt.NDArray[np.float64]

_IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR_ROW = 1 + 3 * 32 * 32  # label, then the red, green and blue planes
_ARFF_ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'(?P<single>(?:\\.|[^'\\])*)'|"(?P<double>(?:\\.|[^"\\])*)"|(?P<bare>[^\s{]+))\s*(?P<kind>.*)""",
    re.IGNORECASE,
)


def read_idx(data: bytes) -> npt.NDArray[np.generic]:
    """Read an idx file (MNIST's format): two zeros, a type code, the sizes, then the values, big-endian."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_DTYPES:
        raise ValueError(
            f"expected an idx file, which starts with 00 00 and a type code, got '{data[:4].hex(' ')}'; "
            "is it the right file?"
        )
    dtype, num_axes = np.dtype(_IDX_DTYPES[data[2]]), data[3]
    start = 4 + 4 * num_axes
    if len(data) < start:
        raise ValueError(f"expected an idx header of {start} bytes, got {len(data)}; the file is cut short")
    shape = struct.unpack_from(f">{num_axes}I", data, 4)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise ValueError(
            f"expected {expected} bytes for an idx array of shape {shape}, got {len(data)}; download it again"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def read_idx_bytes(data: bytes, num_axes: int) -> Bytes:
    """Read an idx file of bytes with a number of axes: 3 for images [N, H, W], 1 for labels [N]."""
    found = read_idx(data)
    if found.dtype != np.uint8 or found.ndim != num_axes:
        raise ValueError(
            f"expected an idx array of uint8 with {num_axes} axes, got one {list(found.shape)} of {found.dtype}; "
            "is it the right file?"
        )
    return found.astype(np.uint8)


def read_cifar10_batch(data: bytes) -> tuple[Bytes, Bytes]:
    """Read a batch of CIFAR-10's binary version: images [N, 3, 32, 32] and labels [N]."""
    if not data or len(data) % _CIFAR_ROW:
        raise ValueError(
            f"expected a multiple of {_CIFAR_ROW} bytes (a label and 3 x 32 x 32 pixels), got {len(data)}; "
            "is it a batch of the binary version?"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_ROW)
    labels, pixels = rows[:, 0].copy(), rows[:, 1:].copy()
    if labels.max() > 9:
        raise ValueError(
            f"expected CIFAR-10 labels 0 to 9, got {labels.max()}; is it a batch of the binary version?"
        )
    return pixels.reshape(-1, 3, 32, 32), labels


def read_svhn_mat(data: bytes) -> tuple[Bytes, Bytes]:
    """Read SVHN as published, `X` [32, 32, 3, N] and `y` [N, 1], where 10 is 0: images [N, 3, 32, 32], labels [N]."""
    return _svhn(np.moveaxis(read_mat(data, "X"), -1, 0), read_mat(data, "y"))


def read_svhn_npy(images: bytes, labels: bytes) -> tuple[Bytes, Bytes]:
    """Read SVHN from two `.npy` files, images [N, 32, 32, 3] and labels [N]: images [N, 3, 32, 32] and labels [N]."""
    return _svhn(*map(_read_npy, (images, labels)))


def _read_npy(data: bytes) -> npt.NDArray[np.generic]:
    """Read a `.npy` file; its header says how much memory it wants, which the file itself must have."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
        if math.prod(shape) * dtype.itemsize > len(data):
            raise ValueError(f"a header of shape {shape} in a file of {len(data)} bytes")
        return np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # a damaged header is parsed as Python, which fails in many ways
        raise ValueError(
            f"expected a .npy file, got one that cannot be read ({error!s:.200}); is it damaged?"
        ) from error


def _svhn(images: npt.NDArray[np.generic], labels: npt.NDArray[np.generic]) -> tuple[Bytes, Bytes]:
    if labels.dtype.kind not in "iuf" or not np.isin(labels, range(11)).all():
        raise ValueError(
            f"expected numbers 0 to 10 as SVHN labels, got an array {list(labels.shape)} of {labels.dtype} "
            "that holds others; is it the right file?"
        )
    flat = labels.ravel()
    if images.shape != (flat.size, 32, 32, 3) or images.dtype != np.uint8:
        raise ValueError(
            f"expected {flat.size} SVHN images of 32 x 32 x 3 uint8, one per label, "
            f"got an array {list(images.shape)} of {images.dtype}; are the two of the same part?"
        )
    # [N, H, W, C] -> [N, C, H, W]
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.uint8)
    return channels_first, (flat.astype(np.int64) % 10).astype(np.uint8)


def read_csv_matrix(text: str) -> tuple[list[str], Matrix]:
    """Read comma-separated numbers below one header row of column names."""
    header, *rows = text.splitlines() or [""]
    names = [name.strip() for name in header.split(",")]
    return names, _parse_rows(enumerate(rows, start=2), names)


# Why not scipy.io.arff: it gives a structured array in which {0,1} attributes are byte strings, and its
# errors name neither line nor attribute (a short row is a bare IndexError).
def read_arff(text: str) -> tuple[list[str], Matrix]:
    """Read a dense, numeric ARFF table, in which `?` is NaN: the attributes' names, and the values [N, len(names)].

    Attributes are numeric, real, integer or nominal with numbers for values, such as {0,1}.
    """
    names: list[str] = []
    lines = enumerate(text.splitlines(), start=1)
    for number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("%") or re.match(r"@relation\b", line, re.IGNORECASE):
            continue
        if re.match(r"@data\b", line, re.IGNORECASE):
            return names, _parse_rows(((at, row.partition("%")[0]) for at, row in lines), names)
        names.append(_arff_attribute(number, line))
    raise ValueError("expected a line @data in the ARFF file, got none; the file is cut short or not ARFF")


def _arff_attribute(number: int, line: str) -> str:
    match = _ARFF_ATTRIBUTE.fullmatch(line)
    if match is None:
        raise ValueError(f"line {number}: expected @relation, @attribute or @data in ARFF, got {line!r}")
    quoted = match["single"] if match["single"] is not None else match["double"]
    name = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    if not _is_numeric_kind(match["kind"]):
        raise ValueError(
            f"line {number}: expected attribute {name!r} to be numeric, or nominal with numbers for values, "
            f"got {match['kind']!r}; remove it or encode it as numbers"
        )
    return name


def _is_numeric_kind(kind: str) -> bool:
    nominal = re.match(r"\{(.*)\}", kind)
    if nominal is None:
        return re.match(r"(numeric|real|integer)\b", kind, re.IGNORECASE) is not None
    try:
        return all(math.isfinite(float(_unquote(value))) for value in nominal[1].split(","))
    except ValueError:
        return False


def _parse_rows(lines: Iterable[tuple[int, str]], names: Sequence[str]) -> Matrix:
    """Parse numbered lines of comma-separated numbers; blank ones are passed over."""
    rows = []
    for number, raw in lines:
        line = raw.strip()
        if not line:
            continue
        cells = line.split(",")
        if len(cells) != len(names):
            raise ValueError(
                f"line {number}: expected {len(names)} values, one per column, got {len(cells)}; "
                "rows must be dense, separated by commas"
            )
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:  # the slow way, for the few rows with missing or quoted values, and for errors
            rows.append([_number(number, *pair) for pair in zip(names, cells, strict=True)])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(names))


def _number(line: int, name: str, cell: str) -> float:
    value = _unquote(cell)
    try:
        return math.nan if value == "?" else float(value)
    except ValueError:
        raise ValueError(
            f"line {line}, attribute {name!r}: expected a number or ?, got {value!r}; "
            "remove the column or encode it as numbers"
        ) from None


def _unquote(cell: str) -> str:
    return cell.strip().strip("'\"").strip()
