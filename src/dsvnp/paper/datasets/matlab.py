"""MATLAB files of the versions 4 to 7.2, from bytes to arrays: dense, real arrays of numbers, and nothing else.

Why not `scipy.io.loadmat`: it takes the type code of an element for an index into a table in C, and a damaged code ends
the process. Here every code and size is checked before it is used. A file may hold other variables (texts, cells,
structures, sparse or complex arrays); they are passed over, and refused if they are asked for.
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsvnp.paper.datasets.locate import LARGEST

Array = npt.NDArray[np.generic]
Variables = Iterator[tuple[str, Callable[[], Array]]]  # the name of each, and what reads it

_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED, _UTF8 = 1, 5, 6, 14, 15, 16  # types of elements
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMBERS, _OPAQUE = range(6, 16), 17  # classes of variables: double to uint64; one without sizes
_COMPLEX = 0x800  # a flag
_HEAD = 1024  # bytes in which the sizes and the name of a variable stand
_TYPES_4 = ("f8", "f4", "i4", "i2", "u2", "u1")
_DENSE_4, _SPARSE_4 = 0, 2


def read_mat(data: bytes, variable: str) -> Array:
    """Read one variable of a MATLAB file (versions 4 to 7.2), in the type in which it is stored."""
    names = []
    try:
        # Version 4 begins with a small number, later ones begin with text.
        variables = _variables_4 if 0 in data[:4] else _variables
        for name, read in variables(memoryview(data)):
            if name == variable:
                return read()
            names.append(ascii(name)[1:-1])
    except (ValueError, struct.error, zlib.error) as error:
        raise ValueError(
            f"expected a MATLAB file, got one that cannot be read ({error!s:.200}); is it damaged?"
        ) from error
    raise ValueError(
        f"expected a variable {variable!r} in the MATLAB file, got {', '.join(names) or 'none':.200}"
    )


# ---- versions 5 to 7.2


class _Header(NamedTuple):
    """What stands before the values of a variable."""

    size: int  # bytes of the whole variable
    flags: int
    shape: tuple[int, ...]
    name: str
    end: int  # where the values begin


def _variables(data: memoryview) -> Variables:
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]))
    if order is None:
        raise ValueError("it begins like no MATLAB file")
    (version,) = struct.unpack_from(f"{order}H", data, 124)
    if version >> 8 != 1:
        raise ValueError(f"version {version:#06x} of the format, not 0x0100; `save -v7` writes that")
    at = 128
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}2I", data, at)
        element, at = data[at : at + 8 + size], at + 8 + size
        if at > len(data):
            raise ValueError(f"a variable of {size} bytes where {len(element) - 8} are left")
        is_packed = kind == _COMPRESSED
        # That many bytes unpack to at least as many, but for blocks that hold nothing.
        head = zlib.decompressobj().decompress(element[8 : 8 + _HEAD], _HEAD) if is_packed else element
        header = _header(memoryview(head), order)
        yield header.name, partial(_values, element, header, is_packed, order)


def _header(data: memoryview, order: str) -> _Header:
    kind, size = struct.unpack_from(f"{order}2I", data)
    if kind != _MATRIX:
        raise ValueError(f"an element of type {kind} where a variable should be")
    kind, raw, at = _element(data, 8, order)
    flags, _ = struct.unpack(f"{order}2I", raw)
    shape: tuple[int, ...] = ()
    if flags & 0xFF != _OPAQUE:
        kind, raw, at = _element(data, at, order)
        shape = struct.unpack(f"{order}{len(raw) // 4}i", raw)
        if kind not in (_INT32, _UINT32) or min(shape, default=0) < 0:
            raise ValueError(f"a variable with sizes of type {kind}: {shape}")
    kind, raw, at = _element(data, at, order)
    if kind not in (_INT8, _UTF8):
        raise ValueError(f"a variable with a name of type {kind}")
    return _Header(8 + size, flags, shape, bytes(raw).decode("latin1"), at)


def _element(data: memoryview, at: int, order: str) -> tuple[int, memoryview, int]:
    """The type and the content of an element, and where the next one begins."""
    (kind,) = struct.unpack_from(f"{order}I", data, at)
    if small := kind >> 16:  # a size of up to four, next to the type
        kind, size, start, end = kind & 0xFFFF, small, at + 4, at + 8
    else:
        (size,) = struct.unpack_from(f"{order}I", data, at + 4)
        start = at + 8
        end = start + size + -size % 8
    if start + size > min(len(data), end):
        raise ValueError(f"an element of {size} bytes where {min(len(data), end) - start} are left")
    return kind, data[start : start + size], end


def _values(element: memoryview, header: _Header, is_packed: bool, order: str) -> Array:
    if header.flags & 0xFF not in _NUMBERS or header.flags & _COMPLEX:
        raise ValueError(f"{header.name!r} is no dense array of real numbers, flags {header.flags:#x}")
    whole = memoryview(_unpacked(element[8:], header.size)) if is_packed else element
    kind, raw, _ = _element(whole, header.end, order)
    if kind not in _TYPES:
        raise ValueError(f"{header.name!r} has values of type {kind}, which is none of numbers")
    return _array(raw, np.dtype(order + _TYPES[kind]), header.shape, header.name)


def _unpacked(data: memoryview, size: int) -> bytes:
    """Decompress a variable of a size, and no further."""
    if size > LARGEST:
        raise ValueError(f"a variable of {size} bytes, more than any published file has")
    stream = zlib.decompressobj()
    content = stream.decompress(data, size + 1)
    if len(content) > size or not stream.eof:
        raise ValueError(f"a compressed variable that does not end after {size} bytes")
    return content


def _array(raw: memoryview, dtype: np.dtype[np.generic], shape: tuple[int, ...], name: str) -> Array:
    """A writable array in the machine's byte order; the first axis varies fastest in the file."""
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise ValueError(f"{name!r} has {len(raw)} bytes for the shape {shape} of {dtype.name}")
    return np.frombuffer(raw, dtype).reshape(shape, order="F").astype(dtype.newbyteorder("="))


# ---- version 4


def _variables_4(data: memoryview) -> Variables:
    (code,) = struct.unpack_from("<i", data)
    order = "<" if 0 <= code < 2000 else ">"
    at = 0
    while at < len(data):
        code, rows, columns, is_complex, length = struct.unpack_from(f"{order}5i", data, at)
        mark, kind, layout = code // 100, code // 10 % 10, code % 10
        # The mark is 0 or 10, by the byte order.
        if mark not in (0, 10) or kind >= len(_TYPES_4) or min(rows, columns, length) < 0:
            raise ValueError(f"a variable of type {code} and sizes {rows}, {columns}, {length}")
        dtype = np.dtype(order + _TYPES_4[kind])
        num_parts = 2 if is_complex and layout != _SPARSE_4 else 1
        start, size = at + 20 + length, num_parts * rows * columns * dtype.itemsize
        raw = data[start : start + size]
        if len(raw) < size:
            raise ValueError(f"a variable of {size} bytes where {len(raw)} are left")
        name = bytes(data[start - length : start]).strip(b"\0").decode("latin1")
        is_dense = layout == _DENSE_4 and not is_complex
        yield name, partial(_array if is_dense else _refused, raw, dtype, (rows, columns), name)
        at = start + size


def _refused(raw: memoryview, dtype: np.dtype[np.generic], shape: tuple[int, ...], name: str) -> Array:
    raise ValueError(f"{name!r} is no dense array of real numbers")
