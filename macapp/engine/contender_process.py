"""The coordinator's end of a contender: sends requests, waits for answers, survives its death."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from macapp import faults
from macapp.engine.contender import Failed, Reply, Request
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

POLL_SECONDS = 0.5
Answer = TypeVar("Answer")


class ContenderError(Exception):
    """A contender could not do what it was asked."""

    def __init__(self, failure: Failure, *, is_out_of_memory: bool = False) -> None:
        """Keep what the user should read of it."""
        super().__init__(str(failure.what))
        self.failure = failure
        self.is_out_of_memory = is_out_of_memory


def command() -> list[str]:
    """Return the command line of the process."""
    frozen = getattr(sys, "frozen", False)
    return [sys.executable, *([] if frozen else ["-m", "macapp"]), "contender"]


class ContenderProcess:
    """One contender. `close` ends it, whatever it does."""

    def __init__(self, arguments: list[str]) -> None:
        """Start it.

        Raises:
            ContenderError: it cannot be started.
        """
        self._stderr = tempfile.TemporaryFile()  # close() does
        try:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
            )
        except OSError as error:
            self._stderr.close()
            raise ContenderError(faults.describe_end(None, str(error), had_job=False)) from error
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._decoder = msgspec.json.Decoder(Reply)
        self._unread = b""

    def ask(
        self, request: Request, kind: type[Answer], timeout_s: float
    ) -> Iterator[Answer | None]:
        """Send a request; yield None every half a second, and at last the answer.

        Raises:
            ContenderError: it failed, ended, or gave no answer within ``timeout_s``.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            if self._selector.select(POLL_SECONDS):
                data = os.read(self._process.stdout.fileno(), 1 << 20)
                if not data:
                    raise self._ended()
                self._unread += data
            elif time.monotonic() > deadline:
                raise ContenderError(_silent(timeout_s, self.printed()))
            else:
                yield None
        line, _, self._unread = self._unread.partition(b"\n")
        reply = self._decoder.decode(line)
        if isinstance(reply, Failed):
            raise ContenderError(reply.failure, is_out_of_memory=reply.is_out_of_memory)
        assert isinstance(reply, kind)
        yield reply

    def printed(self) -> str:
        """Return the last lines on its stderr."""
        self._stderr.seek(0)
        return self._stderr.read()[-8000:].decode(errors="replace")

    def close(self) -> None:
        """End the process and forget what it printed."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # an unsent rest of a request
                    continue
        self._selector.close()
        self._stderr.close()

    def _ended(self) -> ContenderError:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        return ContenderError(faults.describe_end(code, self.printed(), had_job=True))


def _silent(seconds: float, printed: str) -> Failure:
    what = QT_TRANSLATE_NOOP("Message", "It has not answered for {seconds} s.")
    remedy = QT_TRANSLATE_NOOP(
        "Message", "Restart the computer and compare again, or compare without this device."
    )
    return Failure(
        Message(what, {"seconds": round(seconds)}), Message(remedy), printed, "crash", True
    )
