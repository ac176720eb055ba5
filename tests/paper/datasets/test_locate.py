"""Data files: found plain or compressed, checked, and missed with a message that helps."""

import bz2
import gzip
import hashlib
import lzma
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from dsvnp.paper.datasets.locate import (
    ChecksumError,
    DataFile,
    MissingDataError,
    data_dir,
    find_data_file,
    open_data_file,
)

CONTENT = b"five boxing wizards"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SPEC = DataFile("wizards/five.bin", "A. Author (2000): http://example.org/wizards", {"": SHA256})
COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def store(directory: Path, content: bytes, suffix: str = "") -> Path:
    path = directory / f"{SPEC.path}{suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(COMPRESS[suffix](content))
    return path


class TestDataDir:
    def test_the_argument_goes_before_the_variable(self, tmp_path, monkeypatch):
        (tmp_path / "argument").mkdir()
        monkeypatch.setenv("DSVNP_DATA", str(tmp_path))
        assert data_dir(tmp_path / "argument") == tmp_path / "argument"
        assert data_dir(str(tmp_path / "argument")) == tmp_path / "argument"
        assert data_dir(None) == tmp_path

    def test_neither_names_both(self, monkeypatch):
        monkeypatch.delenv("DSVNP_DATA", raising=False)
        with pytest.raises(MissingDataError, match=r"got none; .*--data-dir.*DSVNP_DATA"):
            data_dir(None)

    def test_no_directory_names_what_to_correct(self, tmp_path, monkeypatch):
        monkeypatch.setenv("DSVNP_DATA", str(tmp_path / "variable"))
        with pytest.raises(MissingDataError, match=r"variable, which is not a directory; correct DSVNP_DATA"):
            data_dir(None)
        with pytest.raises(MissingDataError, match=r"argument, which is not a directory; correct --data-dir"):
            data_dir(tmp_path / "argument")


class TestOpen:
    @pytest.mark.parametrize("suffix", COMPRESS)
    def test_every_variant_gives_the_content(self, tmp_path, suffix):
        path = store(tmp_path, CONTENT, suffix)
        assert find_data_file(tmp_path, SPEC) == path
        assert open_data_file(tmp_path, SPEC) == CONTENT

    def test_the_plain_file_goes_first(self, tmp_path):
        store(tmp_path, b"other", ".gz")
        store(tmp_path, CONTENT)
        assert open_data_file(tmp_path, SPEC) == CONTENT

    def test_missing_names_the_files_the_publisher_and_the_option(self, tmp_path):
        assert find_data_file(tmp_path, SPEC) is None
        with pytest.raises(MissingDataError) as caught:
            open_data_file(tmp_path, SPEC)
        message = str(caught.value)
        assert (
            f"five.bin, five.bin.gz, five.bin.xz, five.bin.bz2 in {tmp_path / 'wizards'}, got none" in message
        )
        assert "--data-dir (or DSVNP_DATA)" in message
        assert message.endswith("Published by A. Author (2000): http://example.org/wizards")


class TestChecksum:
    @pytest.mark.parametrize("suffix", COMPRESS)
    def test_a_wrong_one_names_file_expected_got_and_remedy(self, tmp_path, suffix):
        path = store(tmp_path, b"altered", suffix)
        with pytest.raises(ChecksumError) as caught:
            open_data_file(tmp_path, SPEC)
        message, got = str(caught.value), hashlib.sha256(b"altered").hexdigest()
        assert message.startswith(f"{path}: expected sha256 {SHA256}, got {got}; download it again")
        assert "verify=False" in message
        assert "http://example.org/wizards" in message

    def test_verify_false_accepts_an_altered_file(self, tmp_path):
        store(tmp_path, b"altered", ".gz")
        assert open_data_file(tmp_path, SPEC, verify=False) == b"altered"

    @pytest.mark.parametrize(
        "known",
        [
            f"sha256:{SHA256}",
            "md5:" + hashlib.md5(CONTENT).hexdigest(),
            "git:" + hashlib.sha1(b"blob 19\0" + CONTENT).hexdigest(),
        ],
    )
    def test_algorithms(self, tmp_path, known):
        spec = DataFile(SPEC.path, SPEC.origin, {"": known})
        path = store(tmp_path, CONTENT)
        assert open_data_file(tmp_path, spec) == CONTENT
        path.write_bytes(b"altered")
        with pytest.raises(ChecksumError, match=known.replace(":", " ")):
            open_data_file(tmp_path, spec)

    def test_the_stored_sum_will_do(self, tmp_path):
        path = store(tmp_path, CONTENT, ".xz")
        spec = DataFile(SPEC.path, SPEC.origin, {".xz": hashlib.sha256(path.read_bytes()).hexdigest()})
        assert open_data_file(tmp_path, spec) == CONTENT
        store(tmp_path, b"altered", ".xz")
        with pytest.raises(ChecksumError, match=f"expected sha256 {spec.sums['.xz']}, got"):
            open_data_file(tmp_path, spec)

    def test_a_file_compressed_anew_passes_by_its_content(self, tmp_path):
        store(tmp_path, CONTENT, ".gz")
        spec = DataFile(SPEC.path, SPEC.origin, {".gz": "0" * 64, "": SHA256})
        assert open_data_file(tmp_path, spec) == CONTENT

    @pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
    @pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"not it" + data])
    def test_a_damaged_file_is_named(self, tmp_path, suffix, damage):
        path = store(tmp_path, CONTENT, suffix)
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(ChecksumError, match=rf"{suffix}: expected a complete {suffix} file.*again"):
            open_data_file(tmp_path, SPEC, verify=False)


class TestBombs:
    """A small file that becomes a large one is refused before memory is taken for it."""

    @pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
    def test_content_beyond_what_was_published_is_refused(self, tmp_path, suffix):
        spec = replace(SPEC, largest=10_000)
        store(tmp_path, bytes(50_000_000), suffix)
        tracemalloc.start()
        try:
            with pytest.raises(ChecksumError, match="expected at most 10000 bytes of content, got more"):
                open_data_file(tmp_path, spec)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000  # a decoder's own window is 8 MB
        finally:
            tracemalloc.stop()

    def test_a_window_of_gigabytes_is_refused(self, tmp_path):
        greedy = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**30}]
        path = store(tmp_path, CONTENT)
        path.rename(path.with_name(path.name + ".xz")).write_bytes(lzma.compress(CONTENT, filters=greedy))
        with pytest.raises(ChecksumError, match="does not decompress"):
            open_data_file(tmp_path, SPEC)

    def test_a_large_file_is_not_read(self, tmp_path, monkeypatch):
        path = store(tmp_path, CONTENT)
        monkeypatch.setattr(Path, "read_bytes", None)
        with pytest.raises(ChecksumError, match=r"five\.bin: expected at most 18 bytes"):
            open_data_file(tmp_path, replace(SPEC, largest=len(CONTENT) - 1))
        assert path.is_file()

    @pytest.mark.parametrize("suffix", COMPRESS)
    def test_content_of_just_that_size_is_taken(self, tmp_path, suffix):
        store(tmp_path, CONTENT * 1000, suffix)
        spec = replace(SPEC, largest=len(CONTENT) * 1000)
        assert open_data_file(tmp_path, spec, verify=False) == CONTENT * 1000
