"""What Metal prints to file descriptor 2 while a run goes on without a window.

In the app the engine's descriptor is a pipe that the window reads; on the command line this
module reads it, passes everything on, and notes the lines that make a run worthless.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from macapp import faults
from macapp.messages import Message
from macapp.protocol import RunNotice

if TYPE_CHECKING:
    from collections.abc import Iterator


class StderrWatch:
    """Finds errors of the GPU in what is printed."""

    def __init__(self) -> None:
        """Know of none."""
        self._detector = faults.GarbageDetector()
        self._is_told = False

    def take(self, printed: bytes) -> None:
        """Look at what was printed next."""
        self._detector.take(printed)

    def news(self) -> RunNotice | None:
        """Return a notice, once, if the GPU has reported an error."""
        if self._is_told or not self._detector.line:
            return None
        self._is_told = True
        return RunNotice(0, "garbage", Message(faults.GARBAGE_NOTICE), "garbage")


@contextmanager
def watch_stderr() -> Iterator[StderrWatch]:
    """Lead file descriptor 2 through a pipe while this is entered."""
    watch = StderrWatch()
    original = os.dup(2)
    reading, writing = os.pipe()

    def pass_on() -> None:
        while printed := os.read(reading, 65536):
            watch.take(printed)
            os.write(original, printed)

    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    thread = threading.Thread(target=pass_on, name="stderr")
    thread.start()
    try:
        yield watch
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)  # closes the pipe's last writing end, so that the thread ends
        thread.join()
        os.close(reading)
        os.close(original)
