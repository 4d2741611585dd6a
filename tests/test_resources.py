from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from macapp import resources

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_resources_of_a_checkout_hold_the_data() -> None:
    assert (resources.folder() / "mnist" / "train-images-idx3-ubyte.gz").is_file()


def test_resources_of_a_wheel_lie_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "macapp"
    (package / "resources").mkdir(parents=True)
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    assert resources.folder() == package / "resources"


def test_resources_of_a_bundle_lie_where_its_loader_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "resources").mkdir()
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    assert resources.folder() == tmp_path / "resources"
