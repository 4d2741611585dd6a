from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from macapp import resources
from tests.engine import fake_mps, small_digits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from macapp.engine.datasets import Dataset


@pytest.fixture(scope="session")
def resource_folder() -> Path:
    return resources.folder()


@pytest.fixture
def digits() -> Dataset:
    return small_digits.make()


@pytest.fixture
def metal() -> Iterator[fake_mps.FakeMemory]:
    """Let the test use a device "mps"."""
    with fake_mps.installed() as memory:
        yield memory
