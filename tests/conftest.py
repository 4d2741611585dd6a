from __future__ import annotations

import os

# Before any Qt module is loaded: without a screen, the window is tested in memory.
if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest


@pytest.fixture(autouse=True)
def _no_process_left() -> object:
    """Fail a test that leaves an engine behind."""
    import psutil

    before = set(psutil.Process().children(recursive=True))
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    left = [child for child in left if "resource_tracker" not in " ".join(child.cmdline())]
    for child in left:
        child.kill()
    assert not left, f"processes left behind: {left}"
