"""Clocks of a run: how long it computed, whether the computer slept, how often to report."""

from __future__ import annotations

import time

SLEEP_SECONDS = 5.0
"""By so much the wall clock must run ahead before a sleep is assumed: clocks are also set."""


class Pace:
    """How many steps make one message, so that messages come ``message_seconds`` apart.

    A device that works through a queue tells its speed only when it is read, so the count
    follows the speed measured between reads, and at most doubles from one to the next.
    """

    def __init__(self, message_seconds: float) -> None:
        """Begin with a message after the first step."""
        self.steps = 1
        self._message_seconds = message_seconds

    def adapt(self, steps: int, seconds: float) -> None:
        """Take note that the last ``steps`` steps took ``seconds``."""
        fitting = int(steps * self._message_seconds / max(seconds, 1e-9))
        self.steps = max(1, min(fitting, 2 * self.steps))


class Stopwatch:
    """Adds up the time it runs. Whoever stops it has synchronized the device."""

    def __init__(self) -> None:
        """Start."""
        self.seconds = 0.0
        self.slept = False
        """Whether the computer slept while it ran: the wall clock counts that, ours does not."""
        self.start()

    def start(self) -> None:
        """Go on."""
        self._started: float | None = time.perf_counter()
        self._started_wall = time.time()

    def stop(self) -> float:
        """Stop, and return the seconds since the last start; 0 if it stood still."""
        if self._started is None:
            return 0.0
        lap = time.perf_counter() - self._started
        if time.time() - self._started_wall - lap > SLEEP_SECONDS:
            self.slept = True
        self._started = None
        self.seconds += lap
        return lap
