"""Log files, and the text that *Copy diagnostics* puts on the clipboard."""

from __future__ import annotations

import faulthandler
import getpass
import logging
import re
from collections import deque
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from macapp.messages import Failure

LOG_BYTES = 500_000
LOG_FILES = 3
TAIL_LINES = 120
LAST_FAILURES = 5
log = logging.getLogger("macapp")


class Diagnostics:
    """What happened, kept for somebody who wants to know why."""

    def __init__(self, folder: Path | None = None) -> None:
        """Write logs into ``folder``; without one, or if it cannot be written, keep none."""
        self._failures: deque[str] = deque(maxlen=LAST_FAILURES)
        self._path: Path | None = None
        self._handler: RotatingFileHandler | None = None
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "metal-trainer.log"
            handler = RotatingFileHandler(
                path, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8"
            )
            crash_path = folder / "window-crash.log"
            crash = _read(crash_path)
            # Kept open: the fault handler writes there when a signal ends the process.
            self._crash_file = crash_path.open("w")
        except OSError:
            return
        faulthandler.enable(self._crash_file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        self._path, self._handler = path, handler
        if crash:  # it would be overwritten by the next one
            log.info("the window ended by a signal last time:\n%s", crash)

    def close(self) -> None:
        """Write no more."""
        if self._handler is not None:
            faulthandler.disable()
            self._crash_file.close()
            log.removeHandler(self._handler)
            self._handler.close()
            self._handler = None

    def take_failure(self, failure: Failure) -> None:
        """Remember what the user was told, and why."""
        text = f"{failure.what} {failure.remedy}\n{failure.details}".strip()
        self._failures.append(text)
        log.info("failure: %s", text)

    def log_tail(self) -> str:
        """Return the last lines of the log, "" if there is none."""
        if self._path is None:
            return ""
        lines = _read(self._path).splitlines()
        if len(lines) < TAIL_LINES:  # it was begun anew a moment ago
            lines = [*_read(self._path.with_name(self._path.name + ".1")).splitlines(), *lines]
        return "\n".join(lines[-TAIL_LINES:])

    def report(self, facts: Mapping[str, Any]) -> str:
        """Return everything as text: facts, last failures, log; nobody's name is in it."""
        parts = ["Metal Trainer diagnostics"]
        parts.append(msgspec.json.format(msgspec.json.encode(facts), indent=1).decode())
        parts += [f"Failure {index}:\n{text}" for index, text in enumerate(self._failures, 1)]
        if tail := self.log_tail():
            parts.append(f"Log:\n{tail}")
        return anonymous("\n\n".join(parts)) + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def anonymous(text: str, home: str = "", user: str = "") -> str:
    """Return ``text`` without the home folder and the user's name; by default this user's.

    The name is replaced where it stands as a word of its own, in any case: in paths, addresses,
    and lines of other programs.
    """
    home = home or str(Path.home())
    if not user:
        try:
            user = getpass.getuser()
        except Exception:  # no such user, no environment: see getpass
            user = ""
    names = {user, Path(home).name} - {""}
    if len(home) > 1:
        text = text.replace(home, "~")
    for name in names:
        pattern = rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"
        text = re.sub(pattern, "(user)", text, flags=re.IGNORECASE)
    return text
