"""Notices when a running job is silent for longer than any honest step takes."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from macapp.trainer import TrainerState

SILENCE_SECONDS = 30.0
FIRST_STEP_SECONDS = 120.0
"""The first step compiles, and before it the pictures are loaded and moved."""
CHECK_MS = 500


class Watchdog(QObject):
    """Told of every sign of life; tells when there is none."""

    silent = Signal(object)
    """None: nothing was heard for too long. Sent once, until `wait_on` or a sign of life."""
    answered = Signal(object)
    """None: after `silent`, a sign of life."""

    def __init__(self, parent: QObject | None = None) -> None:
        """Watch nothing yet."""
        super().__init__(parent)
        self.silence_seconds = SILENCE_SECONDS
        self.first_step_seconds = FIRST_STEP_SECONDS
        self._is_barking = self._has_stepped = False
        self._heard_at = 0.0
        self._timer = QTimer(self, interval=CHECK_MS)
        self._timer.timeout.connect(self._check)

    @property
    def is_silent(self) -> bool:
        """Whether `silent` was sent and nothing has been heard since."""
        return self._is_barking

    @property
    def limit_seconds(self) -> float:
        """How long the job may be silent now."""
        return self.silence_seconds if self._has_stepped else self.first_step_seconds

    def set_state(self, state: TrainerState) -> None:
        """Watch while a job runs; a paused one may be silent, a stopping one can be forced."""
        if state is not TrainerState.RUNNING:
            self._timer.stop()
            self._calm()
        elif not self._timer.isActive():
            self._heard_at = time.monotonic()
            self._timer.start()

    def begin_job(self) -> None:
        """A new job: its first step may take longer."""
        self._has_stepped = False

    def wait_on(self) -> None:
        """Be patient for as long again."""
        self._heard_at = time.monotonic()
        self._is_barking = False

    @Slot(object)
    def step_done(self, _event: object) -> None:
        """Hear that a step was trained."""
        self._has_stepped = True

    @Slot(object)
    def heard(self, _event: object) -> None:
        """Hear any sign of life."""
        self._heard_at = time.monotonic()
        self._calm()

    def _calm(self) -> None:
        if self._is_barking:
            self._is_barking = False
            self.answered.emit(None)

    @Slot()
    def _check(self) -> None:
        if not self._is_barking and time.monotonic() - self._heard_at > self.limit_seconds:
            self._is_barking = True
            self.silent.emit(None)
