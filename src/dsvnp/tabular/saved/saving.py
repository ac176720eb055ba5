"""Saving: a fitted estimator as a folder of two files, `estimator.json` and `tensors.safetensors`; no pickle.

The record has the checksums of both files and replaces the one before it in one piece: from then on the new estimator
counts. Its tensors were written before, as `.next-tensors.safetensors`, and get their name afterwards. A process may
die at any moment: the folder holds the old estimator or the new one, and the next save clears up. Files of others in
the folder stay. A folder of another format than this program writes is refused.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as deserialize
from safetensors.torch import save as serialize
from torch import Tensor

from dsvnp import __version__, files, locks
from dsvnp.schema import read_json, wrong
from dsvnp.tabular.saved.checking import RECORD_FORM, TensorError, check_record, check_tensors
from dsvnp.tabular.saved.content import FORMAT, VERSION, Content, OtherWeightsError, fill

RECORD, TENSORS, PLOT = "estimator.json", "tensors.safetensors", "calibration.png"
NEXT = f".next-{TENSORS}"  # tensors of a save that has not ended
LARGEST_RECORD = 64 * 2**20  # bytes: categories of thousands of columns
REMEDY = "save the estimator again"


def may_hold(path: Path) -> bool:
    """Whether an estimator may be written there: nothing is there, an empty folder, or an estimator."""
    if not path.exists() or (path / RECORD).is_file():
        return True
    # What a save that was killed left behind does not count.
    return path.is_dir() and all(
        file.name in (locks.NAME, NEXT) or files.LEFTOVER.fullmatch(file.name) for file in path.iterdir()
    )


@contextmanager
def alone_in(path: Path, wait: bool = False, say: Callable[[str], object] = print) -> Iterator[Path]:
    """Hold the folder of an estimator, which is where a link leads; see `locks.folder_lock` for the arguments.

    A new folder is removed if nothing was written into it.
    """
    folder = path.resolve()
    if not may_hold(folder):
        raise FileExistsError(f"{path} is there and holds no estimator; choose another name")
    is_new = not folder.exists()
    try:
        with locks.folder_lock(folder, wait, say):
            yield folder
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()  # if nothing is in it
        raise


def write(path: Path, record: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write an estimator into a new folder, or in place of an estimator that is there; files of others stay."""
    with alone_in(path) as folder:
        replace(folder, record, tensors)
    return path


def replace(folder: Path, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write both files into a held folder, on disk when this returns; the record decides which tensors count."""
    _settle(folder)
    data = serialize(tensors)
    made = {**record, "sha256": {TENSORS: files.digest(data)}}
    made["sha256"][RECORD] = files.digest_of_record(json.loads(json.dumps(made)))
    try:
        files.write_atomically(folder / NEXT, data)
        files.write_atomically(folder / RECORD, json.dumps(made, indent=1) + "\n")
    finally:
        _settle(folder)
    files.remove(folder / PLOT)  # of the model before
    files.flush(folder)


def _settle(folder: Path) -> None:
    """End what a save began: tensors that the record names get their name, all else of it is removed."""
    files.sweep(folder)
    if not (folder / NEXT).exists():
        return
    try:
        named = _read_record(folder)["sha256"].get(TENSORS)
    except ValueError:
        named = None
    if named == files.digest(folder / NEXT):
        files.rename(folder / NEXT, folder / TENSORS)
    else:
        files.remove(folder / NEXT)


def read(path: Path) -> Content:
    """Read a folder; refuse what is no estimator's, damaged, or of another format."""
    record = _read_record(path)
    data = _read_tensors(path, record)
    try:
        return Content(record, deserialize(data))
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path / TENSORS} cannot be read ({error}); {REMEDY}") from None


def made(kind: type, content: Content, path: Path) -> Any:
    """An estimator of a kind with the settings that were read."""
    try:
        return kind(**content.record["params"])
    except TypeError as error:
        raise ValueError(f"{path} is damaged: {error}; {REMEDY}") from None


def restore(estimator: Any, content: Content, path: Path) -> None:
    """Put what was read from a folder into an estimator of its settings."""
    try:
        check_record(content.record)
        check_tensors(content.record, content.tensors)
        fill(estimator, *content)
    except OtherWeightsError as error:
        raise OtherWeightsError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kind = "" if type(error) in (ValueError, TensorError) else f"{type(error).__name__} "
        reason = str(error).partition("\n")[0][:300]
        place = path / TENSORS if isinstance(error, TensorError) else path
        raise ValueError(f"{place} is damaged: {kind}{reason}; {REMEDY}") from None


def _read_record(path: Path) -> dict[str, Any]:
    """Read and check `estimator.json`."""
    file = path / RECORD
    if not file.is_file():
        raise ValueError(
            f"{path} holds no estimator: {RECORD} is not there; pass the folder that save, or dsvnp fit, wrote"
        )
    record = read_json(file, f"it is damaged; {REMEDY}", LARGEST_RECORD)
    found = record.get("format") if isinstance(record, dict) else None
    if found != FORMAT:
        raise ValueError(f"{file} is no estimator's: format {found!r}, not {FORMAT!r}")
    if reason := wrong(record, RECORD_FORM):
        raise ValueError(f"{file} {reason}; {REMEDY}")
    if record["version"] != VERSION:
        raise ValueError(
            f"{file} was written by dsvnp {record['dsvnp']} in format {record['version']}; dsvnp {__version__} reads "
            f"format {VERSION}: install that version, or fit again"
        )
    _check_digest(record, file)
    return dict(record)


def _check_digest(record: dict[str, Any], file: Path) -> None:
    """Hold a record against its own checksum."""
    given = record.get("sha256")
    if not isinstance(given, dict):
        raise ValueError(f"{file} is damaged: it lacks its checksums; {REMEDY}")
    rest = {**record, "sha256": {name: value for name, value in given.items() if name != RECORD}}
    if files.digest_of_record(rest) != given.get(RECORD):
        raise ValueError(f"{file} is damaged: it does not have the checksum that it gives; {REMEDY}")


def _read_tensors(path: Path, record: dict[str, Any]) -> bytes:
    """The file of tensors that the record means; after a save that was killed it may have its first name still."""
    wanted = record["sha256"].get(TENSORS)
    reason = "is not there"
    for name in (TENSORS, NEXT, TENSORS):  # another process may rename it meanwhile
        file = path / name
        if file.is_file():
            data = file.read_bytes()
            if wanted == files.digest(data):
                return data
            reason = f"does not have the checksum that {RECORD} gives"
    raise ValueError(f"{path / TENSORS} cannot be read: it {reason}; {REMEDY}")
