"""Forms that JSON must have before it is used: settings by name, lists, numbers, texts; and how two records differ.

A file that someone sends, or that a disk has damaged, is refused in one line that names it and what is wrong there.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsvnp.files import gunzipped

LARGEST = 256 * 2**20  # bytes: a thousand times what the largest run of the paper leaves
NUMBER = object()  # a finite number, no truth value; or null, where `make_row` had none
TEXT = object()  # a short text in one line


def read_json(path: Path, remedy: str, largest: int = LARGEST) -> Any:
    """Read JSON, compressed if its name ends in `.gz`, unless it is larger than any that this package writes.

    An error ends with the remedy.
    """
    if (size := path.stat().st_size) > largest:
        raise ValueError(
            f"{path} has {size} bytes, more than any such file ({largest}); is it the right file?"
        )
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = _unpacked(path, data, remedy, largest)
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} is not JSON ({reason:.200}); {remedy}") from error


def _unpacked(path: Path, data: bytes, remedy: str, largest: int) -> bytes:
    """The content of a gzip file; one that is damaged, or unpacks to more than the largest size, is refused."""
    try:
        content = gunzipped(data, largest + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no complete gzip file ({error}); {remedy}") from error
    if len(content) > largest:
        raise ValueError(
            f"{path} unpacks to more bytes than any such file ({largest}); is it the right file?"
        )
    return content


def wrong(data: Any, form: Any, place: str = "") -> str:
    """What is wrong with data of a form; an empty text if nothing is. What a form does not name may be there too.

    A tuple of one form also takes null.
    """
    here = f"has {place}" if place else "holds"
    if isinstance(form, tuple):
        return "" if data is None else wrong(data, form[0], place)
    if isinstance(form, dict):
        if not isinstance(data, dict):
            return (
                f"lacks {', '.join(form)}" if not place else f"{here} = {_short(data)}, not settings by name"
            )
        if absent := [name for name in form if name not in data]:
            return f"lacks {', '.join(f'{place}.{name}'.lstrip('.') for name in absent)}"
        parts = ((f"{place}.{name}".lstrip("."), data[name], form[name]) for name in form)
    elif isinstance(form, list):
        if not isinstance(data, list):
            return (
                f"{here} {_short(data)}, not a list" if not place else f"{here} = {_short(data)}, not a list"
            )
        parts = ((f"{place}[{number}]", item, form[0]) for number, item in enumerate(data))
    else:
        return "" if _is(data, form) else f"{here} = {_short(data)}, not {_words(form)}"
    return next(filter(None, (wrong(value, inner, name) for name, value, inner in parts)), "")


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The settings in which two records differ, those inside others by their dotted names, with both values."""
    for key in sorted(one.keys() | other.keys()):
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from ((f"{key}.{name}", *values) for name, *values in differences(a, b))
        elif a != b:
            yield key, a, b


def _is(data: Any, form: Any) -> bool:
    """Whether a single value has a form."""
    if form is NUMBER or form is float:
        # `statistics` and formats take what a float can hold; NaN stands for null in some files.
        if data is None or isinstance(data, bool):
            return data is None and form is NUMBER
        return isinstance(data, int | float) and abs(data) < 1e300
    if form is TEXT:
        return isinstance(data, str) and len(data) <= 500 and data.isprintable()
    if form is int:
        return isinstance(data, int) and not isinstance(data, bool) and abs(data) < 2**63
    return isinstance(data, form)


def _words(form: Any) -> str:
    """A form in words."""
    words = {NUMBER: "a number", TEXT: "a text of one line", int: "a whole number", dict: "settings by name"}
    return {**words, float: "a number", bool: "true or false", str: "a text", list: "a list"}[form]


def _short(data: Any) -> str:
    """The beginning of a value; never all of one that may be large or deep."""
    if isinstance(data, dict | list):
        return f"a {'list' if isinstance(data, list) else 'dictionary'} of {len(data)}"
    return ascii(data)[:60] if not isinstance(data, int) or abs(data) < 2**63 else "a number of many digits"
