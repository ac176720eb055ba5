"""The pages of a Parquet file before polars reads it: a count that damage made negative would end the process.

A file is columns in row groups, each a chain of pages with a header in Thrift's compact protocol; the footer says where
they begin. What cannot be understood here is left to polars, which refuses it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

HEADER = 2**16  # bytes that are read of a page: its header, statistics included
DEEPEST = 20  # structs within structs; the format has six


def check_pages(path: Path) -> None:
    """Refuse a page whose sizes are negative, or that claims more values than its column."""
    try:
        with path.open("rb") as file:
            for at, header, most in _pages(file):
                counts = [header.get(2, 0), header.get(3, 0)]  # sizes of the page, in bytes
                for kind in (5, 8):  # data pages of either version
                    data = header.get(kind, {})
                    counts += [value for value in data.values() if isinstance(value, int)]
                    if data.get(1, 0) > most:
                        counts.append(-1)
                counts.append(header.get(7, {}).get(1, 0))  # values of a dictionary
                if min(counts) < 0:
                    raise ValueError(f"the page at byte {at} has sizes that cannot be")
    except (LookupError, TypeError, AttributeError, OverflowError):
        return


def _pages(file: BinaryIO) -> Iterator[tuple[int, dict[int, Any], int]]:
    """Where each page begins, its header, and the number of values in its column."""
    end = file.seek(0, 2)
    file.seek(end - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(end - 8 - length)
    footer, _ = _struct(file.read(length), 0)
    for group in footer[4]:
        for column in group[1]:
            about = column[3]
            at = min(about[name] for name in (9, 11) if name in about)
            stop, left = min(at + about[7], end), about[5]
            while at < stop and left > 0:
                file.seek(at)
                header, size = _struct(file.read(HEADER), 0)
                yield at, header, about[5]
                values = header.get(5, header.get(8, {})).get(1, 0)
                if not values and 7 not in header:
                    break  # neither data nor a dictionary
                left, at = left - values, at + size + header[3]


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and where it ends."""
    if depth > DEEPEST:
        raise LookupError("too deep")
    fields, number = {}, 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _whole(data, at)
        fields[number], at = _value(data, at, byte & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """A value of one of Thrift's kinds, and where it ends."""
    if kind in (1, 2):  # true or false: the kind itself
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _whole(data, at)
    if kind == 7:
        return data[at + 7], at + 8  # a float, of which there is no use
    if kind == 8:
        size, at = _unsigned(data, at)
        return None, at + size
    if kind in (9, 10):
        count, inner, at = data[at] >> 4, data[at] & 15, at + 1
        if count == 15:
            count, at = _unsigned(data, at)
        items = []
        for _ in range(count):
            if inner in (1, 2):
                item, at = data[at] == 1, at + 1
            else:
                item, at = _value(data, at, inner, depth + 1)
            items.append(item)
        return items, at
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise LookupError(f"no kind {kind}")  # maps: the format has none


def _whole(data: bytes, at: int) -> tuple[int, int]:
    """A signed number: 0, −1, 1, −2 … are written as 0, 1, 2, 3 …"""
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise LookupError("a number of too many bytes")
