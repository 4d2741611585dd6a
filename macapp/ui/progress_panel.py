"""How far the run is, how long it will take, and the buttons that hold or end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from macapp.trainer import TrainerState
from macapp.ui import theme, words

if TYPE_CHECKING:
    from macapp.protocol import BatchHalved, EpochDone, JobStarted, StepsDone

FORCE_STOP_MS = 5000
"""A stop that is not answered for so long can be forced."""


class TimeLeft:
    """Estimates the rest of a run from the time its steps and test passes took."""

    def __init__(self, started: JobStarted) -> None:
        """Begin with nothing known but the size of the job."""
        self._epochs = started.epochs
        self._test_seconds = 0.0
        self._go_on(started.first_step - 1, started.first_epoch - 1, started.steps_per_epoch)

    def halve_batch(self, event: BatchHalved) -> None:
        """Begin the epoch anew: twice the steps, each of which takes another time."""
        self._go_on(event.step, event.epoch - 1, event.steps_per_epoch)

    def _go_on(self, step: int, epoch: int, steps_per_epoch: int) -> None:
        self._first_step = self._step = step
        self._epoch = epoch
        self._total_steps = step + steps_per_epoch * (self._epochs - epoch)
        self._finished_seconds = self._epoch_seconds = 0.0

    def add_steps(self, event: StepsDone) -> None:
        """Take note of trained steps."""
        self._step = event.first_step + len(event.losses) - 1
        self._epoch_seconds = event.epoch_seconds

    def add_epoch(self, event: EpochDone) -> None:
        """Take note of a finished epoch."""
        self._step, self._epoch = event.step, event.epoch
        self._finished_seconds += event.seconds
        self._epoch_seconds = 0.0
        self._test_seconds = event.test_seconds

    @property
    def fraction(self) -> float:
        """Share of all steps that are done."""
        return self._step / self._total_steps

    @property
    def seconds(self) -> float | None:
        """The estimate; None before the first step."""
        trained = self._finished_seconds + self._epoch_seconds
        steps = self._step - self._first_step
        if not steps or not trained:
            return None
        tests = self._test_seconds * (self._epochs - self._epoch)
        return (self._total_steps - self._step) * trained / steps + tests


class ProgressPanel(QWidget):
    """Shows the state of the trainer and the progress of its job."""

    pause_requested = Signal(object)
    """None."""
    resume_requested = Signal(object)
    """None."""
    stop_requested = Signal(object)
    """None."""
    force_stop_requested = Signal(object)
    """None."""

    def __init__(self) -> None:
        """Show that PyTorch is being prepared."""
        super().__init__()
        self._state = TrainerState.PREPARING
        self._time_left: TimeLeft | None = None
        self._epoch = 1
        self._last_result = ""
        self._bar = QProgressBar(textVisible=False, maximum=1000)
        self._bar.setAccessibleName(self.tr("Progress"))
        self._text = QLabel()
        self.pause_button = QPushButton(self.tr("Pause"))
        self.pause_button.setMinimumWidth(96)
        self.pause_button.clicked.connect(self._pause_clicked)
        self.stop_button = QPushButton(self.tr("Stop"))
        self.stop_button.setMinimumWidth(96)
        self.stop_button.clicked.connect(self._stop_clicked)
        self._force_timer = QTimer(self, interval=FORCE_STOP_MS, singleShot=True)
        self._force_timer.timeout.connect(self._offer_force)
        self._can_force = False

        row = QHBoxLayout()
        row.addWidget(self._text, 1)
        row.addWidget(self.pause_button)
        row.addWidget(self.stop_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.SPACING)
        layout.addWidget(self._bar)
        layout.addLayout(row)
        self._refresh()

    @property
    def text(self) -> str:
        """The line below the bar."""
        return self._text.text()

    def set_state(self, state: TrainerState) -> None:
        """Follow the trainer."""
        self._state = state
        self._can_force = False
        if state is TrainerState.STOPPING:
            self._force_timer.start()
        else:
            self._force_timer.stop()
        self._refresh()

    def start(self, event: JobStarted) -> None:
        """Begin to count a job."""
        self._time_left = TimeLeft(event)
        self._epochs = event.epochs
        self._epoch = 1
        self._last_result = ""
        self._refresh()

    def add_steps(self, event: StepsDone) -> None:
        """Count trained steps."""
        if self._time_left is not None:
            self._epoch = event.epoch
            self._time_left.add_steps(event)
            self._refresh()

    def add_epoch(self, event: EpochDone) -> None:
        """Count a finished epoch."""
        if self._time_left is not None:
            self._time_left.add_epoch(event)
            self._refresh()

    def halve_batch(self, event: BatchHalved) -> None:
        """Begin the epoch anew, in smaller steps."""
        if self._time_left is not None:
            self._time_left.halve_batch(event)
            self._refresh()

    def finish(self, result: str) -> None:
        """Say how the job ended."""
        self._last_result = result
        self._refresh()

    def _refresh(self) -> None:
        fraction = self._time_left.fraction if self._time_left is not None else 0.0
        self._bar.setValue(round(1000 * fraction))
        self._text.setText(self._status())
        state = self._state
        is_paused = state is TrainerState.PAUSED
        self.pause_button.setText(self.tr("Resume") if is_paused else self.tr("Pause"))
        self.pause_button.setEnabled(state in (TrainerState.RUNNING, TrainerState.PAUSED))
        self.stop_button.setText(self.tr("Force stop") if self._can_force else self.tr("Stop"))
        self.stop_button.setEnabled(
            self._can_force
            or state in (TrainerState.WAITING, TrainerState.RUNNING, TrainerState.PAUSED)
        )

    def _status(self) -> str:
        match self._state:
            case TrainerState.PREPARING:
                return self.tr("Preparing PyTorch…")
            case TrainerState.WAITING:
                return self.tr("Preparing PyTorch… Training starts by itself.")
            case TrainerState.READY:
                return self._last_result or self.tr("Ready. Press Start.")
            case TrainerState.STOPPING:
                if self._can_force:
                    return self.tr("The engine does not answer.")
                return self.tr("Stopping…")
            case TrainerState.UNAVAILABLE:
                return self._last_result or self.tr("The training engine is not available.")
            case TrainerState.CLOSED:
                return ""
        return self._running_status()

    def _running_status(self) -> str:
        if self._time_left is None or self._time_left.fraction == 0:
            return self.tr("Loading the pictures…")
        text = self.tr("Epoch {epoch} of {epochs}").format(epoch=self._epoch, epochs=self._epochs)
        if self._state is TrainerState.PAUSED:
            return text + self.tr(" · paused")
        seconds = self._time_left.seconds
        if seconds is not None:
            text += self.tr(" · {time} left").format(time=words.duration(seconds))
        return text

    @Slot()
    def _pause_clicked(self) -> None:
        if self._state is TrainerState.PAUSED:
            self.resume_requested.emit(None)
        else:
            self.pause_requested.emit(None)

    @Slot()
    def _stop_clicked(self) -> None:
        if self._can_force:
            self.force_stop_requested.emit(None)
        else:
            self.stop_requested.emit(None)

    @Slot()
    def _offer_force(self) -> None:
        self._can_force = True
        self._refresh()
