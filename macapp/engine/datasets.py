"""The pictures that come with the app, checked byte for byte before they are used."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# SHA-256 of the files as they lie in resources/mnist.
MNIST_DIGESTS = {
    "train-images-idx3-ubyte.gz": (
        "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971"
    ),
    "train-labels-idx1-ubyte.gz": (
        "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b"
    ),
}


@dataclass(frozen=True)
class Split:
    """Pictures and what they show."""

    images: NDArray[np.uint8]
    """Shape (pictures, channels, height, width), 0 to 255."""
    labels: NDArray[np.int64]
    """Shape (pictures,), each the index of a class."""

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """Pictures to train on, pictures to test with, and how their pixels are scaled.

    A pixel p becomes (p / 255 - mean) / std.
    """

    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: float
    std: float


def load(name: str, resources: Path) -> Dataset:
    """Return the dataset called ``name``.

    Raises:
        UserError: a file is missing, unreadable, or not the one that was delivered.
        KeyError: there is no such dataset.
    """
    return {"mnist": _load_mnist}[name](resources / "mnist")


def _load_mnist(folder: Path) -> Dataset:
    # All four are checked before the first is unpacked: a bad one is reported at once.
    files = {name: _read_checked(folder / name, digest) for name, digest in MNIST_DIGESTS.items()}
    return Dataset(
        train=Split(
            _idx_array(files["train-images-idx3-ubyte.gz"])[:, np.newaxis],
            _idx_array(files["train-labels-idx1-ubyte.gz"]).astype(np.int64),
        ),
        test=Split(
            _idx_array(files["t10k-images-idx3-ubyte.gz"])[:, np.newaxis],
            _idx_array(files["t10k-labels-idx1-ubyte.gz"]).astype(np.int64),
        ),
        classes=tuple(str(digit) for digit in range(10)),
        mean=0.1307,  # the article's figures: mean and standard deviation of the training pixels
        std=0.3081,
    )


def _read_checked(path: Path, expected: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            Failure(
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message",
                        "The data file {file}, with the SHA-256 digest {expected}, cannot be read.",
                    ),
                    {"file": path.name, "expected": expected},
                ),
                _REINSTALL,
                f"{path}\n{error}",
            )
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise UserError(
            Failure(
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message",
                        "The data file {file} is damaged or was changed: its SHA-256 digest "
                        "should be {expected}, but is {found}.",
                    ),
                    {"file": path.name, "expected": expected, "found": found},
                ),
                _REINSTALL,
                f"{path}\n{len(content)} bytes",
            )
        )
    return content


_REINSTALL = Message(
    QT_TRANSLATE_NOOP(
        "Message",
        "Install Metal Trainer again to get a good copy of its data. Nothing of yours is lost.",
    )
)


def _idx_array(compressed: bytes) -> NDArray[np.uint8]:
    """Return the array in a gzipped idx file of bytes (format: yann.lecun.com/exdb/mnist).

    The header is a magic number, whose last byte counts the dimensions, then each dimension as
    a big-endian 32-bit integer.
    """
    # A bytearray, since torch wants arrays it may write to.
    content = bytearray(gzip.decompress(compressed))
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", count=dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
