"""Where the data files lie: in a checkout, an installed package, or a frozen bundle."""

from __future__ import annotations

import sys
from pathlib import Path


def folder() -> Path:
    """Return the folder ``resources``, which holds mnist/, icons/ and more."""
    package = Path(__file__).resolve().parent
    candidates = [package / "resources", package.parent / "resources"]  # wheel, checkout
    if frozen := getattr(sys, "_MEIPASS", None):  # set by PyInstaller's loader
        candidates.insert(0, Path(frozen) / "resources")
    return next((path for path in candidates if path.is_dir()), candidates[-1])
