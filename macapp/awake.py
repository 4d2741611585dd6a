"""Keeps macOS from napping the app and from idling to sleep while a job runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

from macapp import foundation

Starter: TypeAlias = Callable[[list[str]], "subprocess.Popen[bytes]"]


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Awake:
    """Held from the start to the end of a job. On other systems it does nothing."""

    def __init__(
        self,
        info: foundation.ProcessInfo | None = None,
        start: Starter = _start,
        platform: str = sys.platform,
    ) -> None:
        """Hold nothing yet; the arguments are for tests."""
        self._info = info if info is not None else foundation.process_info()
        self._start = start
        self._is_mac = platform == "darwin"
        self._token: object = None
        self._caffeinate: subprocess.Popen[bytes] | None = None

    @property
    def is_held(self) -> bool:
        """Whether something keeps the Mac awake."""
        return self._token is not None or self._caffeinate is not None

    def hold(self) -> None:
        """Begin; nothing happens if it has begun already."""
        if not self._is_mac or self.is_held:
            return
        try:
            if self._info is not None:
                self._token = self._info.begin(foundation.USER_INITIATED, "Training a network")
        except Exception:  # then the second way
            self._token = None
        if self._token is None:
            try:
                # -i: no idle sleep; -w: it ends with this process, however that ends.
                self._caffeinate = self._start(
                    ["/usr/bin/caffeinate", "-i", "-w", str(os.getpid())]
                )
            except OSError:
                self._caffeinate = None

    def release(self) -> None:
        """Let the Mac sleep again."""
        token, self._token = self._token, None
        child, self._caffeinate = self._caffeinate, None
        if token is not None and self._info is not None:
            try:
                self._info.end(token)
            except Exception:  # it ends with the process at the latest
                return
        if child is not None:
            child.terminate()
            child.wait()
