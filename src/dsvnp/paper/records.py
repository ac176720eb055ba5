"""The files of results as a reader may trust them: their size, their form and their names are checked before use.

A file that someone sends, or that a disk has damaged, is refused in one line that names it. Reports read them without
torch.
"""

import json
import re
from pathlib import Path
from typing import Any

LARGEST = 256 * 2**20  # bytes: a thousand times what the largest run of the paper leaves
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+=,()-]{0,99}")


class _Number:
    """A finite number, no truth value; or null, where `make_row` had none."""


class _Text:
    """A short text in one line."""


NUMBER, TEXT = _Number(), _Text()
ROW = {
    **dict.fromkeys(("dataset", "model", "metric", "split", "unit"), TEXT),
    **dict.fromkeys(("mean", "std", "median", "paper", "paper_spread"), NUMBER),
    "seeds": [NUMBER],
}
RESULTS = {
    **dict.fromkeys(("experiment", "preset", "device", "version"), TEXT),
    "config": dict,
    "rows": [ROW],
}
MEASUREMENT = {**dict.fromkeys(("dataset", "metric", "split", "unit"), TEXT), "values": [NUMBER]}
UNIT = {
    "model": TEXT,
    "seeds": [int],
    "measurements": [MEASUREMENT],
    "extras": dict,
    "seconds": NUMBER,
    "machine": TEXT,
}
UNITS = {"experiment": TEXT, "config": dict, "units": [UNIT]}
TIMES = {"units": [{"seconds": NUMBER}]}
SPEED = {
    "machine": {"device": TEXT},
    "rows": [
        {
            **dict.fromkeys(("what", "library", "model", "how", "device"), TEXT),
            "replicas": int,
            "ms_per_model_step": NUMBER,
        }
    ],
}
FOLDS = [{"dataset": TEXT, "estimator": TEXT, "seconds": NUMBER}]


def read_record(path: Path, form: Any) -> Any:
    """Read JSON of a given form; whatever else is refused in a line that names the file."""
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(
            f"{path} has {size} bytes, more than any file of results ({LARGEST}); is it the right file?"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} is not JSON ({reason:.200}); run the experiment again") from error
    if reason := wrong(data, form):
        raise ValueError(f"{path} {reason}; is it written by `dsvnp reproduce`?")
    return data


def wrong(data: Any, form: Any, place: str = "") -> str:
    """What is wrong with data of a form; an empty text if nothing is. What a form does not name may be there too."""
    here = f"has {place}" if place else "holds"
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


def _is(data: Any, form: Any) -> bool:
    """Whether a single value has a form."""
    if form is NUMBER:
        # `statistics` and formats take what a float can hold; NaN stands for null in some files.
        return data is None or (
            isinstance(data, int | float) and not isinstance(data, bool) and abs(data) < 1e300
        )
    if form is TEXT:
        return isinstance(data, str) and len(data) <= 500 and data.isprintable()
    if form is int:
        return isinstance(data, int) and not isinstance(data, bool) and abs(data) < 2**63
    return isinstance(data, form)


def _words(form: Any) -> str:
    """A form in words."""
    return {NUMBER: "a number", TEXT: "a text of one line", int: "a whole number", dict: "settings by name"}[
        form
    ]


def _short(data: Any) -> str:
    """The beginning of a value; never all of one that may be large or deep."""
    if isinstance(data, dict | list):
        return f"a {'list' if isinstance(data, list) else 'dictionary'} of {len(data)}"
    return ascii(data)[:60] if not isinstance(data, int) or abs(data) < 2**63 else "a number of many digits"


def check_name(name: str, what: str) -> str:
    """Return a name that may become part of a file's name and of a figure; refuse others."""
    if not NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            f"{what} {ascii(name)[:80]} cannot be used: it becomes part of a file's name, and takes letters, digits "
            "and . _ + = , ( ) - alone"
        )
    return name
