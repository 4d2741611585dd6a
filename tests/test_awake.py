"""A Mac is kept awake by one of two ways; another system is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from macapp import foundation
from macapp.awake import Awake


class Info:
    """NSProcessInfo: counts its activities."""

    def __init__(self, *, fails: bool = False) -> None:
        self.begun: list[tuple[int, str]] = []
        self.ended: list[object] = []
        self._fails = fails

    def call(self, selector: str) -> int:
        raise NotImplementedError

    def begin(self, options: int, reason: str) -> object:
        if self._fails:
            raise OSError("no such selector")
        self.begun.append((options, reason))
        return f"token {len(self.begun)}"

    def end(self, token: object) -> None:
        self.ended.append(token)


def never(_arguments: list[str]) -> Any:
    raise AssertionError("started a program")


def test_an_activity_is_held_from_the_start_to_the_end() -> None:
    info = Info()
    awake = Awake(info, never, "darwin")
    awake.release()  # nothing yet
    for number in (1, 2):
        awake.hold()
        awake.hold()  # once is enough
        assert awake.is_held
        assert len(info.begun) == number
        awake.release()
        awake.release()
        assert not awake.is_held
        assert info.ended[-1] == f"token {number}"
    options, reason = info.begun[0]
    assert options & 1 << 20  # NSActivityIdleSystemSleepDisabled
    assert reason


def test_without_it_caffeinate_does() -> None:
    started: list[tuple[list[str], subprocess.Popen[bytes]]] = []

    def start(arguments: list[str]) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        started.append((arguments, child))
        return child

    awake = Awake(Info(fails=True), start, "darwin")
    awake.hold()
    awake.hold()
    ((arguments, child),) = started
    assert arguments == ["/usr/bin/caffeinate", "-i", "-w", str(os.getpid())]
    assert awake.is_held
    awake.release()
    assert not awake.is_held
    assert child.returncode == -signal.SIGTERM


def test_without_either_nothing_happens() -> None:
    awake = Awake(Info(fails=True), platform="darwin")  # here is no caffeinate
    awake.hold()
    assert not awake.is_held
    awake.release()


def test_another_system_is_left_alone() -> None:
    info = Info()
    awake = Awake(info, never, "linux")
    awake.hold()
    assert not awake.is_held
    assert info.begun == []


@pytest.mark.skipif(sys.platform == "darwin", reason="there it is real")
def test_nsprocessinfo_is_silent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert foundation.process_info() is None
    assert foundation.thermal_state() is None
    assert foundation.is_low_power_mode() is None
    # On a Mac whose libraries are not where they should be.
    monkeypatch.setattr(sys, "platform", "darwin")
    foundation.process_info.cache_clear()
    try:
        assert foundation.process_info() is None
    finally:
        foundation.process_info.cache_clear()


def test_an_answer_that_fails_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foundation, "process_info", Info)
    assert foundation.thermal_state() is None
