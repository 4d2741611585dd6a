"""Processes that should be gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable


def still_running(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return those that live on after so many seconds.

    A zombie is over: it waits for the parent, or the system, to take note of it.
    """
    _, left = psutil.wait_procs(list(processes), timeout=seconds)
    return [process for process in left if not _is_zombie(process)]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
