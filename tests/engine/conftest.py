from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from macapp import resources
from macapp.engine.datasets import Dataset, Split

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def resource_folder() -> Path:
    return resources.folder()


@pytest.fixture
def digits() -> Dataset:
    """A small set that can be learned: each class is a bright row in noise."""
    random = np.random.default_rng(0)

    def split(count: int) -> Split:
        labels = random.integers(0, 10, count)
        images = random.integers(0, 40, (count, 1, 28, 28), dtype=np.uint8)
        for index, label in enumerate(labels):
            images[index, 0, 2 * label + 4 : 2 * label + 7] = 255
        return Split(images, labels.astype(np.int64))

    return Dataset(split(1000), split(300), tuple("0123456789"), 0.1307, 0.3081)
