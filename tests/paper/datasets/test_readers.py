"""Readers: each format as published, and each way it can be wrong."""

import io
import re
import struct

import numpy as np
import pytest
import scipy.io

from dsvnp.paper.datasets.readers import (
    read_arff,
    read_cifar10_batch,
    read_csv_matrix,
    read_idx,
    read_idx_bytes,
    read_svhn_mat,
    read_svhn_npy,
)


def as_idx(code: int, array: np.ndarray) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def as_mat(**variables: np.ndarray) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables)
    return file.getvalue()


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class TestIdx:
    @pytest.mark.parametrize(
        ("code", "dtype"),
        [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")],
    )
    def test_every_type(self, code, dtype):
        array = np.arange(24).reshape(2, 3, 4).astype(dtype)
        read = read_idx(as_idx(code, array))
        assert read.dtype == np.dtype(dtype)
        assert read.dtype.isnative
        assert read.flags.writeable
        np.testing.assert_array_equal(read, array)

    @pytest.mark.parametrize("data", [b"", b"\0\0\x08", b"\x1f\x8b\x08\0", b"\0\0\x07\x01\0\0\0\0"])
    def test_no_idx_file(self, data):
        with pytest.raises(ValueError, match=f"starts with 00 00 and a type code, got '{data[:4].hex(' ')}'"):
            read_idx(data)

    def test_a_header_cut_short(self):
        with pytest.raises(ValueError, match=r"expected an idx header of 16 bytes, got 8; .* cut short"):
            read_idx(b"\0\0\x08\x03\0\0\0\x01")

    @pytest.mark.parametrize("change", [-1, 1])
    def test_the_wrong_size(self, change):
        data = (as_idx(0x0B, np.zeros((2, 3), np.int16)) + b"\0")[: 24 + change]
        with pytest.raises(ValueError, match=rf"expected 24 bytes .* shape \(2, 3\), got {24 + change}"):
            read_idx(data)

    @pytest.mark.parametrize(("code", "shape"), [(0x08, ()), (0x08, (2, 3)), (0x0D, (4,))])
    def test_what_are_no_labels(self, code, shape):
        with pytest.raises(ValueError, match=r"expected an idx array of uint8 with 1 axes, got one \["):
            read_idx_bytes(as_idx(code, np.zeros(shape, "f4" if code == 0x0D else "u1")), 1)


class TestCifar10:
    def test_planes_rows_and_labels(self):
        pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), np.uint8)
        data = b"".join(bytes([label]) + image.tobytes() for label, image in zip((3, 9), pixels, strict=True))
        images, labels = read_cifar10_batch(data)
        np.testing.assert_array_equal(images, pixels)
        np.testing.assert_array_equal(labels, [3, 9])
        assert images.dtype == labels.dtype == np.uint8
        assert images.flags.writeable

    @pytest.mark.parametrize("size", [0, 3072, 3074])
    def test_the_wrong_size(self, size):
        with pytest.raises(ValueError, match=f"a multiple of 3073 bytes.*got {size}; .*binary version"):
            read_cifar10_batch(bytes(size))

    def test_a_label_out_of_range(self):
        with pytest.raises(ValueError, match="expected CIFAR-10 labels 0 to 9, got 10"):
            read_cifar10_batch(bytes([10]) + bytes(3072))


class TestSvhn:
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)

    def check(self, images, labels):
        assert images.dtype == labels.dtype == np.uint8
        assert images.flags.c_contiguous
        np.testing.assert_array_equal(images.transpose(0, 2, 3, 1), self.images)
        np.testing.assert_array_equal(labels, [1, 9, 0, 2])

    def test_mat_has_the_count_last_and_10_for_0(self):
        x, y = self.images.transpose(1, 2, 3, 0), np.array([[1], [9], [10], [2]], np.uint8)
        self.check(*read_svhn_mat(as_mat(X=x, y=y)))

    def test_npy(self):
        self.check(*read_svhn_npy(as_npy(self.images), as_npy(np.array([1, 9, 0, 2], np.uint8))))

    def test_images_and_labels_of_different_number(self):
        with pytest.raises(ValueError, match=r"expected 3 SVHN images .*got an array \[4, 32, 32, 3\]"):
            read_svhn_npy(as_npy(self.images), as_npy(np.zeros(3, np.uint8)))

    @pytest.mark.parametrize(
        "labels", [[1, 2, 3, 11], [1, 2, 3, -1], [1.0, 2.0, 3.0, np.nan], [1j] * 4, ["1"] * 4, [(1, 2)] * 4]
    )
    def test_labels_that_are_none(self, labels):
        dtype = np.dtype("i4,f4") if isinstance(labels[0], tuple) else None
        with pytest.raises(ValueError, match="expected numbers 0 to 10 as SVHN labels, got an array"):
            read_svhn_npy(as_npy(self.images), as_npy(np.array(labels, dtype)))

    def test_images_that_are_not_bytes(self):
        with pytest.raises(ValueError, match="of float64"):
            read_svhn_npy(as_npy(self.images / 255), as_npy(np.zeros(4, np.uint8)))


class TestCsv:
    def test_header_and_numbers(self):
        names, values = read_csv_matrix("a, b\n1,-2.5\n\n3e2 , 4\n")
        assert names == ["a", "b"]
        np.testing.assert_array_equal(values, [[1, -2.5], [300, 4]])

    def test_no_rows(self):
        assert read_csv_matrix("a,b\n")[1].shape == (0, 2)

    def test_a_word_is_named_by_line_and_column(self):
        with pytest.raises(ValueError, match=r"line 3, attribute 'b': expected a number or \?, got 'x'"):
            read_csv_matrix("a,b\n1,2\n3,x\n")

    def test_a_short_row_is_named_by_line(self):
        with pytest.raises(ValueError, match="line 2: expected 2 values, one per column, got 1"):
            read_csv_matrix("a,b\n1\n")


class TestArff:
    def test_comments_quotes_cases_spaces_and_missing_values(self):
        names, values = read_arff(
            "% a comment, 'quoted'\n"
            "@RELATION 'some table'\n"
            "\n"
            "@ATTRIBUTE plain            numeric\n"
            "@attribute 'quo\\'ted %'\tREAL  % a comment\n"
            '  @Attribute "double q" Integer\n'
            "@attribute 25400 {0,1}\n"
            "@attribute flag{ '0', \"1\" }\n"
            "@Data\n"
            "% another\n"
            "1, -2.5e-1 ,?,1,'0'\n"
            "\n"
            "  4,5,6,0,1   % the last row\n"
        )
        assert names == ["plain", "quo'ted %", "double q", "25400", "flag"]
        np.testing.assert_array_equal(values, [[1, -0.25, np.nan, 1, 0], [4, 5, 6, 0, 1]])

    @pytest.mark.parametrize("kind", ["string", "{low,high}", "date 'yyyy'", "{}", "", "numerical"])
    def test_an_attribute_that_is_not_numeric(self, kind):
        with pytest.raises(ValueError, match=f"line 2: expected attribute 'a b' .*{re.escape(repr(kind))}"):
            read_arff(f"@relation r\n@attribute 'a b' {kind}\n@data\n")

    def test_a_value_that_is_not_a_number(self):
        with pytest.raises(ValueError, match=r"line 4, attribute 'b': expected a number or \?, got 'high'"):
            read_arff("@attribute a real\n@attribute b real\n@data\n1,high\n")

    @pytest.mark.parametrize("row", ["1", "1,2,3", "{0 1}"])
    def test_a_row_of_the_wrong_length(self, row):
        with pytest.raises(ValueError, match=r"line 5: expected 2 values, .*rows must be dense"):
            read_arff(f"@attribute a real\n@attribute b real\n@data\n1,2\n{row}\n")

    def test_a_header_line_of_another_kind(self):
        with pytest.raises(ValueError, match=r"line 2: expected @relation, @attribute or .*, got '1,2'"):
            read_arff("@attribute a real\n1,2\n")

    def test_no_data(self):
        with pytest.raises(ValueError, match="expected a line @data in the ARFF file, got none"):
            read_arff("@attribute a real\n")


def test_a_npy_header_that_asks_for_more_than_the_file_has_is_refused():
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 32, 32, 3)}
    )
    with pytest.raises(ValueError, match=r"expected a \.npy file.*a header of shape"):
        read_svhn_npy(file.getvalue(), file.getvalue())
