"""One engine process, as the window holds it: what it says, prints and ends with."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from macapp import faults
from macapp.protocol import Folders

if TYPE_CHECKING:
    from macapp.messages import Failure
    from macapp.protocol import Command, Event

EngineMain: TypeAlias = Callable[[Connection, Connection, Folders], None]
"""What an engine process runs: `macapp.engine.process.main`, or a test's own."""


class ProcessOutcome(msgspec.Struct, frozen=True):
    """How an engine process ended."""

    exit_code: int | None
    """Negative: the number of the signal that ended it."""
    stderr: str

    def failure(self, *, had_job: bool) -> Failure:
        """Return what the user should read about it."""
        return faults.describe_end(self.exit_code, self.stderr, had_job=had_job)


class EngineHandle:
    """One engine process and the two pipes that come from it."""

    def __init__(self, main: EngineMain, folders: Folders) -> None:
        """Start the process.

        Args:
            main: the function that it runs.
            folders: where the data files are and where to write, passed on to it.
        """
        context = multiprocessing.get_context("spawn")  # a forked child cannot use Metal
        self._connection, child_connection = context.Pipe()
        self._stderr, child_stderr = context.Pipe(duplex=False)
        self._stderr_tail: deque[bytes] = deque(maxlen=64)
        self._garbage = faults.GarbageDetector()
        self._open: list[Connection] = [self._connection, self._stderr]
        self._process = context.Process(
            target=main,
            args=(child_connection, child_stderr, folders),
            name="Metal Trainer engine",
            daemon=True,
        )
        self.has_failed_silently = False
        """Whether the GPU has reported an error that raised none; whoever asks resets it."""
        # Ctrl-C in a terminal reaches every process there; the window decides what it means. The
        # engine inherits from this thread that it is blocked. The tracker comes first, since the
        # start of an engine starts it, too, and that ends with the signal unblocked.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._process.start()
        # Ours must be the only copies of our ends, else the other end's death goes unseen.
        child_connection.close()
        child_stderr.close()

    @property
    def pid(self) -> int:
        """The number of the process, for whoever reads how much memory it takes."""
        return self._process.pid or 0

    def forget_garbage(self) -> None:
        """A new job begins: what the GPU reported before is not its own."""
        self._garbage = faults.GarbageDetector()
        self.has_failed_silently = False

    def sources(self) -> list[Connection | int]:
        """Return what to wait for: the open pipes, and the end of the process."""
        return [*self._open, self._process.sentinel]

    def has_ended(self) -> bool:
        """Return whether the process is over and all it left in the pipes has been taken.

        The pipes need not be at their end: something the process started may hold them open.
        """
        return not self._process.is_alive() and not any(pipe.poll() for pipe in self._open)

    def receive(self) -> list[Event]:
        """Return the events that wait in the pipe; keep what was printed."""
        events: list[Event] = []
        if self._stderr in self._open and self._stderr.poll():
            # Raw bytes, not messages: it is the file descriptor 2 of the process.
            printed = os.read(self._stderr.fileno(), 65536)
            if printed:
                self._stderr_tail.append(printed)
                self.has_failed_silently |= self._garbage.take(printed)
            else:
                self._close(self._stderr)
        try:
            while self._connection in self._open and self._connection.poll():
                events.extend(self._connection.recv())
        except (EOFError, OSError):
            self._close(self._connection)
        return events

    def send(self, command: Command) -> None:
        """Send a command; one that comes too late is lost with the engine, which is reported."""
        if self._connection in self._open:
            try:
                self._connection.send(command)
            except OSError:
                self._close(self._connection)

    def kill(self) -> None:
        """End the process now."""
        self._process.kill()
        self._process.join()

    def outcome(self) -> ProcessOutcome:
        """Close the pipes, and return how the process ended."""
        self._process.join()
        for connection in tuple(self._open):
            self._close(connection)
        stderr = b"".join(self._stderr_tail).decode(errors="replace")
        return ProcessOutcome(self._process.exitcode, stderr[-8000:])

    def _close(self, connection: Connection) -> None:
        self._open.remove(connection)
        connection.close()
