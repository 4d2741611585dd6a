"""Which operators Metal lacked during a run, so that the CPU computed them."""

from __future__ import annotations

import re
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from macapp import faults
from macapp.messages import QT_TRANSLATE_NOOP, Message
from macapp.protocol import RunNotice

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO


class FallbackRecorder(AbstractContextManager["FallbackRecorder"]):
    """Catches PyTorch's warnings about operators that fall back to the CPU.

    PyTorch gives this warning once a process, for the first such operator alone. While this is
    entered, it warns always; `settle` ends that once every operator of a run has been met.
    """

    def __init__(self, job: int = 0) -> None:
        """Record nothing yet."""
        self._job = job
        self._operators: list[str] = []
        self._told = 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> FallbackRecorder:
        """Begin to listen."""
        self._caught.__enter__()
        warnings.filterwarnings("always", message=faults.FALLBACK)
        self._show = warnings.showwarning
        warnings.showwarning = self._take
        torch.set_warn_always(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listen no more."""
        self.settle()
        self._caught.__exit__(kind, error, trace)

    @property
    def operators(self) -> list[str]:
        """The operators seen, each once, as a developer names them."""
        return [faults.plain_operator(name) for name in self._operators]

    def settle(self) -> None:
        """Let PyTorch be silent again: a warning a step costs time."""
        torch.set_warn_always(False)

    def news(self) -> RunNotice | None:
        """Return a notice with all operators seen, if some are new; else None."""
        if len(self._operators) == self._told:
            return None
        self._told = len(self._operators)
        names = ", ".join(faults.plain_operator(name) for name in self._operators)
        if self._told == 1:
            text = QT_TRANSLATE_NOOP(
                "Message",
                "1 operator ran on the CPU, since Metal lacks it: {names}. That slows the run, "
                "and a comparison with the CPU is not fair.",
            )
        else:
            text = QT_TRANSLATE_NOOP(
                "Message",
                "{count} operators ran on the CPU, since Metal lacks them: {names}. That slows "
                "the run, and a comparison with the CPU is not fair.",
            )
        message = Message(text, {"count": self._told, "names": names})
        return RunNotice(self._job, "fallback", message, "operators")

    def _take(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        found = re.match(faults.FALLBACK, str(message))
        if found is None:
            self._show(message, category, filename, lineno, file, line)
        elif found[1] not in self._operators:
            self._operators.append(found[1])
