from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from macapp.engine import datasets
from macapp.engine.datasets import MNIST_DIGESTS
from macapp.messages import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_bundled_mnist_is_whole(resource_folder: Path) -> None:
    data = datasets.load("mnist", resource_folder)
    assert data.train.images.shape == (60000, 1, 28, 28)
    assert data.test.images.shape == (10000, 1, 28, 28)
    assert data.train.images.dtype == np.uint8
    assert data.train.labels.dtype == np.int64
    # Counts of each digit, and the mean that the article's scaling is made from.
    assert np.bincount(data.train.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert data.train.images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert data.train.images.std() / 255 == pytest.approx(0.3081, abs=5e-5)
    assert len(data.classes) == 10


def _missing(path: Path) -> None:
    path.unlink()


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _replaced(path: Path) -> None:
    path.write_bytes(gzip.compress(b"something else"))


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [_missing, _truncated, _empty, _altered, _replaced, _a_folder])
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_a_bad_file_is_named_with_the_digest_it_should_have(
    tmp_path: Path, resource_folder: Path, harm: Callable[[Path], None], name: str
) -> None:
    shutil.copytree(resource_folder / "mnist", tmp_path / "mnist")
    harm(tmp_path / "mnist" / name)
    with pytest.raises(UserError) as caught:
        datasets.load("mnist", tmp_path)
    failure = caught.value.failure
    assert name in str(failure.what)
    assert MNIST_DIGESTS[name] in str(failure.what)
    assert "Install Metal Trainer again" in str(failure.remedy)
