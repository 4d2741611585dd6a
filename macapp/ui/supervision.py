"""What looks after a running job: watchdog, readings, a Mac kept awake, a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QObject, Signal, Slot

from macapp.diagnostics import log
from macapp.trainer import Trainer, TrainerState
from macapp.ui.readings_panel import ReadingsReader
from macapp.ui.watchdog import Watchdog

if TYPE_CHECKING:
    from macapp.awake import Awake
    from macapp.messages import Failure
    from macapp.protocol import (
        BatchHalved,
        CheckpointSaved,
        DeviceKind,
        EngineReady,
        EpochDone,
        JobEnded,
        JobFailed,
        JobStarted,
        RunNotice,
        TrainingConfig,
    )


class Supervision(QObject):
    """Follows the trainer from job to job."""

    readings_taken = Signal(object)
    """`Readings`, once a second while a job runs."""

    def __init__(self, trainer: Trainer, awake: Awake, parent: QObject) -> None:
        """Listen to ``trainer``; ``awake`` is held while it has a job."""
        super().__init__(parent)
        self._trainer = trainer
        self._awake = awake
        self.watchdog = Watchdog(self)
        self._reader = ReadingsReader(self._engine_pid)
        self._reader.taken.connect(self.readings_taken)
        trainer.state_changed.connect(self._state_changed)
        trainer.heard.connect(self.watchdog.heard)
        trainer.steps_done.connect(self.watchdog.step_done)
        for signal in (
            trainer.engine_ready,
            trainer.engine_lost,
            trainer.job_started,
            trainer.epoch_done,
            trainer.batch_halved,
            trainer.notice_given,
            trainer.job_ended,
            trainer.job_failed,
        ):
            signal.connect(self._log)

    def _engine_pid(self) -> int:
        return self._trainer.engine_pid

    @Slot(object)
    def _state_changed(self, state: TrainerState) -> None:
        self.watchdog.set_state(state)
        if state.has_job and state is not TrainerState.PAUSED:
            self._awake.hold()
        else:
            self._awake.release()
        if state.has_job and not self._reader.isRunning():
            self.watchdog.begin_job()
            self._reader.start()
        elif not state.has_job:
            self._reader.stop()

    @Slot(object)
    def _log(
        self,
        event: EngineReady
        | Failure
        | JobStarted
        | EpochDone
        | BatchHalved
        | RunNotice
        | JobEnded
        | JobFailed,
    ) -> None:
        log.info("%s %s", type(event).__name__, msgspec.json.encode(event).decode())

    def end(self, milliseconds: int) -> None:
        """Stop everything, and wait for the reader's thread."""
        self._awake.release()
        self._reader.stop()
        self._reader.wait(milliseconds)


class Continuation:
    """From where a run that a GPU spoiled can go on, on the CPU."""

    def __init__(self) -> None:
        """Know of no run."""
        self.config: TrainingConfig | None = None
        self._device: DeviceKind | None = None
        self._checkpoint: CheckpointSaved | None = None

    def begin(self, config: TrainingConfig, *, keeps_checkpoint: bool = False) -> None:
        """Take note of a run that begins; one that is continued may be continued again."""
        self.config, self._device = config, None
        if not keeps_checkpoint:
            self._checkpoint = None

    def started(self, event: JobStarted) -> None:
        """Take note of where it runs."""
        self._device = event.device

    def saved(self, event: CheckpointSaved) -> None:
        """Take note of a state to go on from."""
        self._checkpoint = event

    @property
    def ran_on_a_gpu(self) -> bool:
        """Whether the last run was on a GPU, or wanted to be."""
        if self._device is not None:
            return self._device != "cpu"
        return self.config is not None and self.config.device not in ("auto", "cpu")

    @property
    def first_epoch(self) -> int:
        """The epoch it would go on with: 1 if nothing is finished."""
        return self._checkpoint.epoch + 1 if self._checkpoint is not None else 1

    def on_the_cpu(self) -> tuple[TrainingConfig, str]:
        """Return the configuration and the checkpoint ("" for none) to start with."""
        assert self.config is not None
        config = msgspec.structs.replace(self.config, device="cpu")
        return config, self._checkpoint.path if self._checkpoint is not None else ""
