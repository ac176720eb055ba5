"""Files written in one piece: a reader finds the old content or the new, never a part of it.

Everything that this package keeps goes through the few operations at the top of this file: tests can let each
of them fail, or end the process there (`tests/faults`). Temporary names begin with `.writing-` and are created by
whoever writes them: a file or a link that already has such a name is not touched.
"""

import gzip
import hashlib
import io
import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

OPERATIONS = ("make_folder", "create", "write", "flush", "rename", "remove")
LEFTOVER = re.compile(r"\.(writing|removing)-.+")
PIECE = 2**20  # bytes that are unpacked at once


# --- operations ---


def make_folder(path: Path) -> None:
    """Make a folder that is not there yet."""
    path.mkdir()


def create(path: Path) -> int:
    """Create a file for writing, readable as the umask says, and return its descriptor; refuse any that is there."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)


def write(descriptor: int, data: bytes) -> None:
    """Write all of some data."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def flush(path: Path) -> None:
    """Make sure that a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(path: Path, new: Path) -> None:
    """Give a file or a folder a name; a file, or a link, that has this name is replaced."""
    os.replace(path, new)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that it holds; what is not there is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# --- what is made of them ---


def write_atomically(path: Path, data: str | bytes) -> Path:
    """Write a file under a temporary name in its folder, then rename it; text is UTF-8.

    The data is on disk before the file has its name: a crash of the machine leaves no empty file behind. An error names
    the file; what was there before is then still there.
    """
    temporary = temporary_name(path)
    try:
        write_new(temporary, data.encode() if isinstance(data, str) else data)
        rename(temporary, path)
    except BaseException as error:
        if not isinstance(error, FileExistsError):
            remove(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"cannot write it ({error.strerror or error})", str(path)) from error
        raise
    return path


def temporary_name(path: Path) -> Path:
    """A hidden name next to a path that no other process chooses."""
    return path.with_name(f".writing-{path.name[:150]}-{secrets.token_hex(4)}")


def sweep(folder: Path, name: str = "") -> None:
    """Remove what a process that died left half written or half removed in a folder, where nobody else may write.

    With a name, only leftovers of that file; folders inside the folder are left alone.
    """
    if folder.is_dir():
        for leftover in folder.iterdir():
            if LEFTOVER.fullmatch(leftover.name) and name[:150] in leftover.name:
                remove(leftover)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file, on disk when this returns."""
    descriptor = create(path)
    try:
        write(descriptor, data)
    finally:
        os.close(descriptor)
    flush(path)


# --- compression ---


def gzipped(data: str | bytes) -> bytes:
    """Data compressed with gzip, text as UTF-8; equal data gives equal bytes, since neither time nor name is stored."""
    out = io.BytesIO()
    # Not `gzip.compress`: the header that it writes depends on the version of Python.
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return out.getvalue()


def gunzipped(data: bytes, most: int) -> bytes:
    """The content of a gzip file, cut off after `most` bytes; memory is taken as it is unpacked, not before."""
    out = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while part := file.read(min(PIECE, most - len(out))):
            out += part
    return bytes(out)


# --- checksums ---


def digest(content: Path | bytes) -> str:
    """Checksum (SHA-256) of a file, or of what it would hold."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_record(record: dict[str, Any]) -> str:
    """Checksum of a record, however its JSON is laid out."""
    return digest(json.dumps(record, sort_keys=True).encode())
