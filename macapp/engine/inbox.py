"""What the window wants: a thread reads its commands and sets flags. No torch is imported here."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from macapp.protocol import (
    CheckDevices,
    Command,
    Inspect,
    Pause,
    Quit,
    Request,
    Resume,
    SaveWeights,
    StartTraining,
    Stop,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Inbox:
    """Commands that wait, and what was said about the job in progress.

    It begins to read before torch is loaded, so that the process ends with its window from the
    first moment on.
    """

    def __init__(self, connection: Connection) -> None:
        """Begin to read."""
        self._connection = connection
        self._changed = threading.Condition()
        self._jobs: deque[StartTraining] = deque()
        self._requests: deque[Request] = deque()
        # Job numbers grow, so one number stops a job and every one queued before it.
        self._stopped_through = 0
        self._paused_job = 0
        self._quitting = False
        threading.Thread(target=self._read, daemon=True, name="commands").start()

    def next(self) -> StartTraining | Request | None:
        """Wait for something to do, requests first; None means `Quit`."""
        with self._changed:
            self._changed.wait_for(lambda: self._quitting or self._requests or self._jobs)
            if self._quitting:
                return None
            return self._requests.popleft() if self._requests else self._jobs.popleft()

    def next_request(self) -> Request | None:
        """Return a request that waits, or None."""
        return self._requests.popleft() if self._requests else None

    def is_stopped(self, job: int) -> bool:
        """Return whether the job should end."""
        return self._quitting or job <= self._stopped_through

    def is_paused(self, job: int) -> bool:
        """Return whether the job should hold."""
        return job == self._paused_job and not self.is_stopped(job)

    def wait_while_paused(self, job: int) -> None:
        """Wait until the job may go on, should end, or a request waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._requests or not self.is_paused(job))

    def _read(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, OSError):
            # The window died or was killed: no orphan keeps a GPU busy.
            os._exit(0)

    def _take(self, command: Command) -> None:
        with self._changed:
            match command:
                case StartTraining():
                    self._jobs.append(command)
                case SaveWeights() | Inspect() | CheckDevices():
                    self._requests.append(command)
                case Pause():
                    self._paused_job = command.job
                case Resume():
                    self._paused_job = 0
                case Stop():
                    self._stopped_through = command.job
                case Quit():
                    self._quitting = True
            self._changed.notify_all()
