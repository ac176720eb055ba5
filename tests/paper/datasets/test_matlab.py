"""MATLAB files: what SciPy writes is read, and each code and size that may be damaged is refused."""

import io
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from dsvnp.paper.datasets import matlab
from dsvnp.paper.datasets.matlab import read_mat
from dsvnp.paper.datasets.readers import read_svhn_mat

DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8"]
OLD_DTYPES = ["f8", "f4", "i4", "i2", "u2", "u1"]
SCIPYS = Path(scipy.io.matlab.__file__).with_name("tests") / "data"
IMAGES = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), np.uint8)
LABELS = np.array([[1], [10], [2], [9]], np.uint8)


def as_mat(packed: bool = False, version: str = "5", **variables) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=packed, format=version)
    return file.getvalue()


def assert_same(data: bytes, name: str, expected: np.ndarray) -> None:
    got = read_mat(data, name)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype.newbyteorder("=")
    assert got.flags.writeable


def refused(data: bytes, reason: str, name: str = "X") -> None:
    with pytest.raises(ValueError, match=f"expected a MATLAB file, got one .*{reason}") as refusal:
        read_mat(data, name)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


# --- what is read ---


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 3), (2, 3, 4), (1, 3)])
def test_every_type_and_shape_of_numbers(shape, dtype, packed):
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    assert_same(as_mat(packed, first="text", a=array, a_much_longer_name=array + 1), "a", array)
    assert_same(as_mat(packed, a=array, a_much_longer_name=array + 1), "a_much_longer_name", array + 1)


@pytest.mark.parametrize("dtype", OLD_DTYPES)
def test_version_4(dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    others = {"words": "text", "wave": np.ones((2, 2)) * 1j}
    assert_same(as_mat(version="4", **others, array=array), "array", array)
    for name in others:
        refused(
            as_mat(version="4", **others, array=array), f"'{name}' is no dense array of real numbers", name
        )


@pytest.mark.parametrize("path", sorted(SCIPYS.glob("*.mat")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_files_of_many_versions_and_machines_are_read_as_scipy_reads_them(path):
    """Those that SciPy's own tests are made of, which MATLAB and others wrote."""
    try:
        found = scipy.io.loadmat(path)
    except Exception:
        found = {}
    for name, value in found.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and not name.startswith("__"):
            assert_same(path.read_bytes(), name, value)
        else:
            with pytest.raises(ValueError, match="expected a"):
                read_mat(path.read_bytes(), name)


def test_a_missing_variable_names_those_there():
    with pytest.raises(ValueError, match=r"expected a variable 'c' in the MATLAB file, got a, b$"):
        read_mat(as_mat(a=np.ones(2), b=np.ones(2)), "c")
    many = {f"v{number:03}": 1.0 for number in range(100)}
    with pytest.raises(ValueError, match="got v000, v001") as refusal:
        read_mat(as_mat(**many), "c")
    assert len(str(refusal.value)) < 300


# --- what is refused ---


def patched(data: bytes, at: int, form: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, *values)
    return bytes(out)


def repacked(data: bytes, change=lambda data: data, end: bytes = b"") -> bytes:
    """A file of one variable with that variable compressed, after a change."""
    element = zlib.compress(change(data[128:])) + end
    return data[:128] + struct.pack("<2I", 15, len(element)) + element


PLAIN = as_mat(X=IMAGES)
# after 128 bytes: type and size; flags; sizes; name; values
TAG, FLAGS, SIZES, NAME, VALUES = 128, 136, 152, 176, 184


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("code", [0, 8, 10, 11, 14, 15, 16, 17, 18, 19, 20, 1000, 2**16 - 1])
def test_a_type_of_values_that_no_numbers_have_is_refused(code, packed):
    """SciPy looks such a code up without checking it, and the process ends."""
    full = patched(PLAIN, VALUES, "<I", code)
    small = patched(PLAIN, VALUES, "<I", 1 << 16 | code)
    for data in (full, small):
        refused(
            repacked(data) if packed else data, f"'X' has values of type {code}, which is none of numbers"
        )


def test_the_input_at_which_scipy_ended_the_process():
    """Input 425963 of the standing attack: a type of 0 in a small element, the rest of the stream damaged."""
    inner = patched(as_mat(X=IMAGES[..., :2]), VALUES, "<I", 1 << 16)[128:]
    data = PLAIN[:128] + struct.pack("<2I", 15, 862) + zlib.compress(inner)[:234]
    with pytest.raises(ValueError, match="expected a MATLAB file"):
        read_svhn_mat(data)


@pytest.mark.parametrize(
    ("at", "form", "values", "reason"),
    [
        (TAG, "<I", (13,), "an element of type 13 where a variable should be"),
        (TAG + 4, "<I", (2**32 - 1,), "a variable of 4294967295 bytes where"),
        (FLAGS, "<2I", (6, 12), "unpack requires a buffer of 8 bytes"),
        (FLAGS + 8, "<I", (0x809,), "'X' is no dense array of real numbers, flags 0x809"),
        (FLAGS + 8, "<I", (5,), "'X' is no dense array of real numbers, flags 0x5"),
        (SIZES, "<I", (9,), "sizes of type 9"),
        (SIZES + 4, "<I", (15,), "unpack requires a buffer of 12 bytes"),
        (SIZES + 8, "<i", (-32,), r"sizes of type 5: \(-32, 32, 3, 4\)"),
        (SIZES + 8, "<4I", (2**31 - 1,) * 4, "'X' has 12288 bytes for the shape"),
        (SIZES + 8, "<i", (31,), r"'X' has 12288 bytes for the shape \(31, 32, 3, 4\) of uint8"),
        (NAME, "<I", (1 << 16 | 9,), "a name of type 9"),
        (NAME, "<I", (5 << 16 | 1,), "an element of 5 bytes where 4 are left"),
        (NAME, "<2I", (1, 2**32 - 1), "an element of 4294967295 bytes where"),
        (VALUES, "<I", (9,), "'X' has 12288 bytes for the shape .* of float64"),
        (VALUES + 4, "<I", (12289,), "an element of 12289 bytes where 12288 are left"),
        (VALUES + 4, "<I", (12287,), "'X' has 12287 bytes"),
        (124, "<H", (0x200,), "version 0x0200 of the format, not 0x0100; `save -v7` writes that"),
        (126, "<H", (0,), "begins like no MATLAB file"),
    ],
)
def test_a_damaged_code_or_size_is_refused(at, form, values, reason):
    refused(patched(PLAIN, at, form, *values), reason)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_anywhere_is_refused(packed):
    data = as_mat(packed, X=np.arange(100.0))
    for end in range(len(data)):
        with pytest.raises(ValueError, match="expected a"):
            read_mat(data[:end], "X")


@pytest.mark.parametrize("version", ["4", "5"])
def test_any_flipped_byte_gives_an_array_or_is_refused(version):
    data = as_mat(version=version, X=np.arange(6, dtype="u1").reshape(2, 3), y="text")
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[at] ^= flip
            with suppress(ValueError):
                assert read_mat(bytes(broken), "X").dtype.kind in "iuf"


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 5050, "a variable of type"),
        (0, 150, "a variable of type 150"),
        (0, 60, "a variable of type 60"),
        (4, -1, "sizes -1, 4, 2"),
        (4, 2**30, "a variable of 34359738368 bytes where 96 are left"),
        (16, -5, "sizes 3, 4, -5"),
        (12, 1, "a variable of 192 bytes where 96 are left"),
    ],
)
def test_a_damaged_header_of_version_4_is_refused(at, value, reason):
    data = as_mat(version="4", X=np.arange(12.0).reshape(3, 4))
    refused(patched(data, at, "<i", value), reason)


# --- compression ---


def test_a_compressed_variable_is_unpacked_no_further_than_it_says(monkeypatch):
    more = repacked(PLAIN, lambda data: data + bytes(10**6))
    refused(more, "does not end after 12352 bytes")
    refused(repacked(PLAIN, lambda data: data[:-8]), "an element of 12288 bytes where 12280 are left")
    assert_same(repacked(PLAIN), "X", IMAGES)
    assert_same(repacked(PLAIN, end=b"after"), "X", IMAGES)
    monkeypatch.setattr(matlab, "LARGEST", 12352)
    assert_same(repacked(PLAIN), "X", IMAGES)
    monkeypatch.setattr(matlab, "LARGEST", 12351)
    refused(repacked(PLAIN), "a variable of 12352 bytes, more than any published file has")


def test_a_variable_that_would_take_all_memory_is_refused_before_it_does():
    claims = repacked(patched(PLAIN, TAG + 4, "<I", 2**32 - 1))
    refused(claims, "a variable of 4294967303 bytes, more than any published file has")


def test_a_checksum_that_does_not_fit_is_refused():
    data = bytearray(as_mat(True, X=np.arange(100.0)))
    data[-1] ^= 1
    refused(bytes(data), "incorrect data check")


def test_a_variable_behind_a_large_one_is_read_without_unpacking_it(monkeypatch):
    data = as_mat(True, X=np.zeros(10**6, np.uint8), y=LABELS)
    monkeypatch.setattr(matlab, "LARGEST", 1000)
    assert_same(data, "y", LABELS)
    refused(data, "more than any published file has")
