"""Published data files: where they are looked for, how they are checked, what to do when one is absent."""

import bz2
import hashlib
import io
import lzma
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dsvnp.files import gunzipped

# bytes of memory that an .xz file may ask for; the best compression there is takes 65 million
WINDOW = 128 * 2**20


def _unxz(data: bytes, most: int) -> bytes:
    """Decompress one stream of .xz."""
    stream = lzma.LZMADecompressor(memlimit=WINDOW)
    content = stream.decompress(data, max_length=most)
    if len(content) < most and not stream.eof:
        raise EOFError("it ends before its end-of-stream marker was reached")
    return content


DECOMPRESS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "": lambda data, most: data[:most],
    ".gz": gunzipped,
    ".xz": _unxz,
    ".bz2": lambda data, most: bz2.BZ2File(io.BytesIO(data)).read(most),
}
"""The variants of a file that are accepted, by suffix, in the order they are looked for; each takes a limit."""


LARGEST = 256 * 2**20  # bytes: the largest published file, SVHN's images, has 225 million


class MissingDataError(FileNotFoundError):
    """A data directory or a file in it is not where it was looked for."""


class ChecksumError(ValueError):
    """A data file is not the published one, byte for byte."""


@dataclass(frozen=True)
class DataFile:
    """One published file: its place below the data directory, its checksums and its origin."""

    path: str  # the name without compression suffix, relative to the data directory, with forward slashes
    origin: str  # who published it and on which page, as a person would look for it
    # checksums of the variants we know, by suffix ("" is the content itself): a sha256, or another sum with its name
    # before it, `md5:...` or `git:...` (the id git gives the content as a blob)
    sums: Mapping[str, str] = field(default_factory=dict)
    largest: int = LARGEST  # bytes that the content may have; more is refused before memory is taken for it


def data_dir(path: str | Path | None) -> Path:
    """Choose the directory of the data sets: the argument, else the variable `DSVNP_DATA`."""
    chosen = path or os.environ.get("DSVNP_DATA")
    if not chosen:
        raise MissingDataError(
            "expected a directory of data sets, got none; name it with --data-dir or set DSVNP_DATA"
        )
    directory = Path(chosen).expanduser()
    if not directory.is_dir():
        source = "--data-dir" if path else "DSVNP_DATA"
        raise MissingDataError(
            f"expected a directory of data sets, got {directory}, which is not a directory; correct {source}"
        )
    return directory


def find_data_file(directory: Path, spec: DataFile) -> Path | None:
    """Find the file, plain or compressed; None where no variant exists."""
    candidates = (directory / f"{spec.path}{suffix}" for suffix in DECOMPRESS)
    return next((path for path in candidates if path.is_file()), None)


def open_data_file(directory: Path, spec: DataFile, *, verify: bool = True) -> bytes:
    """Read a file's decompressed content and check that it is what was published.

    Raises:
        MissingDataError: No variant of the file is there.
        ChecksumError: The file is damaged, or differs from the published one, which verify=False accepts.
    """
    path = find_data_file(directory, spec)
    if path is None:
        names = ", ".join(f"{Path(spec.path).name}{suffix}" for suffix in DECOMPRESS)
        raise MissingDataError(
            f"expected one of {names} in {(directory / spec.path).parent}, got none; put it there, or name the "
            f"directory that holds {spec.path} with --data-dir (or DSVNP_DATA). Published by {spec.origin}"
        )
    suffix = path.name.removeprefix(Path(spec.path).name)
    if path.stat().st_size > spec.largest:
        raise ChecksumError(_describe_large(path, spec))
    stored = path.read_bytes()
    try:
        content = DECOMPRESS[suffix](stored, spec.largest + 1)
    except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise ChecksumError(
            f"{path}: expected a complete {suffix} file, got one that does not decompress ({error}); "
            f"download it again. Published by {spec.origin}"
        ) from error
    if len(content) > spec.largest:
        raise ChecksumError(_describe_large(path, spec))
    if verify:
        _check(path, spec, {suffix: stored, "": content})
    return content


def _check(path: Path, spec: DataFile, found: Mapping[str, bytes]) -> None:
    """Raise an error unless the file as stored, or its content, has the published checksum."""
    # Either suffices: a file that a user compressed again has other stored bytes but the same content.
    mismatches = []
    for suffix, data in found.items():
        if suffix in spec.sums:
            *_, algorithm, expected = f"sha256:{spec.sums[suffix]}".split(":")
            got = _digest(algorithm, data)
            if got == expected:
                return
            mismatches.append(f"expected {algorithm} {expected}, got {got}")
    if mismatches:
        # The content's sum comes last and is the one that counts.
        raise ChecksumError(
            f"{path}: {mismatches[-1]}; download it again, or pass verify=False if you altered it knowingly. "
            f"Published by {spec.origin}"
        )


def _digest(algorithm: str, data: bytes) -> str:
    if algorithm == "git":
        return _digest("sha1", b"blob %d\0" % len(data) + data)
    # These sums detect damage, not malice; saying so keeps md5 and sha1 usable on hardened systems.
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()


def _describe_large(path: Path, spec: DataFile) -> str:
    return (
        f"{path}: expected at most {spec.largest} bytes of content, got more; download it again. "
        f"Published by {spec.origin}"
    )
