"""Small files in the formats in which MNIST and its kin, CIFAR-10 and SVHN are published, made up."""

import struct
from pathlib import Path

import numpy as np


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    )


def draw(number: int, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Dark images with noise and, in a place that depends on the class, a bright bar."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(number) % 10).astype(np.uint8)
    images = rng.integers(0, 60, (number, *shape), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[..., 2 * label : 2 * label + 4, 4:-4] = 220
    return images, labels


def write_mnist(directory: Path, num_train: int = 80, num_test: int = 40, seed: int = 0) -> Path:
    for number, (prefix, size) in enumerate(
        {
            "mnist/train": num_train,
            "mnist/t10k": num_test,
            "fashion-mnist/t10k": num_test,
            "kmnist/t10k": num_test,
        }.items()
    ):
        images, labels = draw(size, (28, 28), seed + number)
        images = images if prefix.startswith("mnist") else images.transpose(0, 2, 1).copy()
        write_idx(directory / f"{prefix}-images-idx3-ubyte", images)
        write_idx(directory / f"{prefix}-labels-idx1-ubyte", labels)
    return directory


def write_cifar10(directory: Path, num_train: int = 80, num_test: int = 40) -> Path:
    (directory / "cifar10").mkdir(parents=True)
    for number in range(6):
        images, labels = draw(num_train // 5 if number else num_test, (3, 32, 32), number)
        rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
        (directory / "cifar10" / (f"data_batch_{number}.bin" if number else "test_batch.bin")).write_bytes(
            rows.tobytes()
        )
    (directory / "svhn").mkdir()
    images, labels = draw(num_test, (3, 32, 32), 9)
    np.save(directory / "svhn/svhn_test_first10000_images.npy", 255 - images.transpose(0, 2, 3, 1))
    np.save(directory / "svhn/svhn_test_first10000_labels.npy", labels)
    return directory
