"""The window's end of the engine: sends it jobs, turns what it does into signals."""

from __future__ import annotations

import enum
import multiprocessing
import time
import traceback
from multiprocessing.connection import wait
from typing import TypeAlias

import msgspec
from PySide6.QtCore import QObject, QThread, Signal

from macapp import faults
from macapp.engine_handle import EngineHandle, EngineMain, ProcessOutcome
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message
from macapp.protocol import (
    BatchHalved,
    CheckDevices,
    CheckpointSaved,
    Command,
    DevicesFound,
    EngineReady,
    EpochDone,
    Event,
    Folders,
    Inspect,
    Inspection,
    JobEnded,
    JobFailed,
    JobPaused,
    JobResumed,
    JobStarted,
    Pause,
    Quit,
    Resume,
    RunNotice,
    SaveWeights,
    StartTraining,
    StepsDone,
    Stop,
    TrainingConfig,
    WeightsSaved,
)

MAX_FAILED_STARTS = 3
"""So many starts in a row may fail before the trainer waits for the user."""
QUIT_SECONDS = 2.0
"""How long the engine may take to end by itself before it is killed."""


class TrainerState(enum.Enum):
    """What the trainer is doing, as the window shows it."""

    PREPARING = enum.auto()
    """The engine process starts and loads PyTorch."""
    WAITING = enum.auto()
    """The same, with a job that begins as soon as the engine is ready."""
    READY = enum.auto()
    RUNNING = enum.auto()
    PAUSED = enum.auto()
    STOPPING = enum.auto()
    UNAVAILABLE = enum.auto()
    """The engine cannot be started; the next job tries again."""
    CLOSED = enum.auto()

    @property
    def has_job(self) -> bool:
        """Whether a job would be lost now."""
        return self in _WITH_JOB

    @property
    def can_start(self) -> bool:
        """Whether a job can be started now."""
        return not self.has_job and self is not TrainerState.CLOSED


_WITH_JOB = {
    TrainerState.WAITING,
    TrainerState.RUNNING,
    TrainerState.PAUSED,
    TrainerState.STOPPING,
}


class _ForceStop(msgspec.Struct, frozen=True):
    """Kill the engine, and start a new one."""


_Request: TypeAlias = "Command | _ForceStop"


class Trainer(QThread):
    """Owns the engine process.

    Its public methods are called on the window's thread and return at once. Its `run` starts the
    engine and blocks on what the engine sends, prints and ends with. Every signal carries one
    frozen struct.
    """

    state_changed = Signal(object)
    """A `TrainerState`."""
    engine_ready = Signal(object)
    """`EngineReady`."""
    engine_lost = Signal(object)
    """A `Failure`: the engine ended between jobs, or cannot be started."""
    job_started = Signal(object)
    """`JobStarted`."""
    steps_done = Signal(object)
    """`StepsDone`."""
    epoch_done = Signal(object)
    """`EpochDone`."""
    batch_halved = Signal(object)
    """`BatchHalved`."""
    checkpoint_saved = Signal(object)
    """`CheckpointSaved`."""
    notice_given = Signal(object)
    """`RunNotice`."""
    job_ended = Signal(object)
    """`JobEnded`."""
    job_failed = Signal(object)
    """`JobFailed`, also when the engine died of it."""
    weights_saved = Signal(object)
    """`WeightsSaved`."""
    devices_found = Signal(object)
    """`DevicesFound`."""
    inspected = Signal(object)
    """`Inspection`."""
    heard = Signal(object)
    """None: the engine said something, whatever it was."""

    def __init__(
        self, engine_main: EngineMain, folders: Folders, parent: QObject | None = None
    ) -> None:
        """Prepare; `start` begins.

        Args:
            engine_main: the function that the engine process runs.
            folders: where the data files are and where to write, passed on to it.
            parent: owns this object.
        """
        super().__init__(parent)
        self._engine_main = engine_main
        self._folders = folders
        self._requests, self._outbox = multiprocessing.Pipe(duplex=False)
        self._last_job = 0
        # Below: only the thread of `run` touches these.
        self._state = TrainerState.PREPARING
        self._engine: EngineHandle | None = None
        self._engine_is_ready = False
        self._job: StartTraining | None = None
        self._failed_starts = 0
        self._force_stopped = False
        self._quit_deadline: float | None = None

    # On the window's thread ----------------------------------------------------------------------

    @property
    def engine_pid(self) -> int:
        """The number of the engine's process, 0 when there is none."""
        engine = self._engine
        return engine.pid if engine is not None else 0

    def train(self, config: TrainingConfig, checkpoint: str = "") -> int:
        """Start a job, now or as soon as the engine is ready; return its number.

        It goes on from the file ``checkpoint``, if one is given.
        """
        self._last_job += 1
        self._outbox.send(StartTraining(self._last_job, config, checkpoint))
        return self._last_job

    def pause(self) -> None:
        """Hold the job between two steps."""
        self._outbox.send(Pause(self._last_job))

    def resume(self) -> None:
        """Go on with the paused job."""
        self._outbox.send(Resume(self._last_job))

    def stop(self) -> None:
        """End the job between two steps."""
        self._outbox.send(Stop(self._last_job))

    def force_stop(self) -> None:
        """End the job by killing the engine; a new one is started."""
        self._outbox.send(_ForceStop())

    def save_weights(self, path: str) -> None:
        """Write the weights of the network trained last; `weights_saved` answers."""
        self._outbox.send(SaveWeights(path))

    def check_devices(self) -> None:
        """Test the GPU again; `devices_found` answers."""
        self._outbox.send(CheckDevices())

    def inspect(self, config: TrainingConfig) -> None:
        """Ask what a run would meet; `inspected` answers, unless its device is not ready."""
        self._outbox.send(Inspect(config))

    def shutdown(self) -> None:
        """End the job, the engine and this thread; then `wait()` returns, within 4 seconds."""
        self._outbox.send(Quit())

    # On the trainer's thread ---------------------------------------------------------------------

    def run(self) -> None:
        """Keep an engine running until `shutdown`."""
        try:
            while self._quit_deadline is None:
                if self._failed_starts < MAX_FAILED_STARTS:
                    self._live_with_an_engine()
                else:
                    self._take_request(self._requests.recv())
        except Exception:
            self.engine_lost.emit(
                Failure(
                    Message(
                        QT_TRANSLATE_NOOP(
                            "Message", "The connection to the training engine is broken."
                        )
                    ),
                    Message(QT_TRANSLATE_NOOP("Message", "Quit Metal Trainer and open it again.")),
                    traceback.format_exc(),
                )
            )
        finally:
            if self._engine is not None:
                self._engine.kill()
            self._set_state(TrainerState.CLOSED)

    def _set_state(self, state: TrainerState) -> None:
        if state is not self._state:
            self._state = state
            self.state_changed.emit(state)

    def _live_with_an_engine(self) -> None:
        """Start an engine and serve it until it has ended."""
        self._set_state(TrainerState.WAITING if self._job else TrainerState.PREPARING)
        self._engine_is_ready = self._force_stopped = False
        engine = self._engine = EngineHandle(self._engine_main, self._folders)
        while not engine.has_ended():
            timeout = None
            if self._quit_deadline is not None:
                timeout = max(0.0, self._quit_deadline - time.monotonic())
            ready = wait([*engine.sources(), self._requests], timeout)
            if not ready:
                engine.kill()
            events = engine.receive()
            if engine.has_failed_silently:
                self._tell_garbage(engine)
            for event in events:
                self._take_event(event)
            if events:
                self.heard.emit(None)
            if self._requests in ready:
                self._take_request(self._requests.recv())
        self._engine = None
        self._take_outcome(engine.outcome())

    def _tell_garbage(self, engine: EngineHandle) -> None:
        engine.has_failed_silently = False
        if self._job is not None:
            text = Message(faults.GARBAGE_NOTICE)
            self.notice_given.emit(RunNotice(self._job.job, "garbage", text, "garbage"))

    def _take_request(self, request: _Request) -> None:
        engine = self._engine
        match request:
            case StartTraining():
                self._job = request
                self._failed_starts = 0
                if self._engine_is_ready and engine is not None:
                    engine.forget_garbage()
                    engine.send(request)
                    self._set_state(TrainerState.RUNNING)
                else:
                    self._set_state(TrainerState.WAITING)
            case Stop() if self._job is not None and not self._engine_is_ready:
                self._end_job(JobEnded(self._job.job, "cancelled"))
                self._set_state(TrainerState.PREPARING)
            case Stop() if self._job is not None and engine is not None:
                engine.send(request)
                self._set_state(TrainerState.STOPPING)
            case _ForceStop() if engine is not None:
                self._force_stopped = True
                engine.kill()
            case Quit():
                self._quit_deadline = time.monotonic() + QUIT_SECONDS
                if self._engine_is_ready and engine is not None:
                    engine.send(request)
                elif engine is not None:
                    engine.kill()  # it is loading PyTorch and would not listen
            case SaveWeights() if not self._engine_is_ready:
                self._emit_not_ready(request)
            case Inspect() | CheckDevices() if not self._engine_is_ready:
                pass  # it says of itself what it finds, as soon as it is ready
            case Pause() | Resume() | SaveWeights() | Inspect() | CheckDevices() if (
                engine is not None
            ):
                engine.send(request)

    def _emit_not_ready(self, request: SaveWeights) -> None:
        failure = Failure(
            Message(QT_TRANSLATE_NOOP("Message", "There is no trained network to save.")),
            Message(QT_TRANSLATE_NOOP("Message", "Train one first.")),
        )
        self.weights_saved.emit(WeightsSaved(request.path, failure))

    def _take_event(self, event: Event) -> None:
        match event:
            case StepsDone():
                self.steps_done.emit(event)
            case EpochDone():
                self.epoch_done.emit(event)
            case EngineReady():
                self._engine_is_ready = True
                self._failed_starts = 0
                self.engine_ready.emit(event)
                self._set_state(TrainerState.READY)
                if self._job is not None:
                    self._take_request(self._job)
            case JobStarted():
                self.job_started.emit(event)
            case JobPaused():
                self._set_state(TrainerState.PAUSED)
            case JobResumed():
                self._set_state(TrainerState.RUNNING)
            case JobEnded() | JobFailed():
                self._end_job(event)
                self._set_state(TrainerState.READY)
            case BatchHalved():
                self.batch_halved.emit(event)
            case CheckpointSaved():
                self.checkpoint_saved.emit(event)
            case RunNotice():
                self.notice_given.emit(event)
            case WeightsSaved():
                self.weights_saved.emit(event)
            case DevicesFound():
                self.devices_found.emit(event)
            case Inspection():
                self.inspected.emit(event)

    def _end_job(self, event: JobEnded | JobFailed) -> None:
        self._job = None
        if isinstance(event, JobEnded):
            self.job_ended.emit(event)
        else:
            self.job_failed.emit(event)

    def _take_outcome(self, outcome: ProcessOutcome) -> None:
        """Say what the end of an engine means."""
        if self._quit_deadline is not None:
            return
        job, was_ready = self._job, self._engine_is_ready
        self._engine_is_ready = False
        if job is not None and self._force_stopped:
            self._end_job(JobEnded(job.job, "forced" if was_ready else "cancelled"))
        elif was_ready and job is not None:
            self._end_job(JobFailed(job.job, outcome.failure(had_job=True)))
        elif was_ready:
            self.engine_lost.emit(outcome.failure(had_job=False))
        else:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                self._give_up(outcome)

    def _give_up(self, outcome: ProcessOutcome) -> None:
        failure = Failure(
            Message(QT_TRANSLATE_NOOP("Message", "The training engine cannot be started.")),
            Message(
                QT_TRANSLATE_NOOP(
                    "Message",
                    "Press Start to try once more. If that does not help, install Metal Trainer "
                    "again and report it with the copied diagnostics.",
                )
            ),
            outcome.failure(had_job=False).details,
        )
        if self._job is None:
            self.engine_lost.emit(failure)
        else:
            self._end_job(JobFailed(self._job.job, failure))
        self._set_state(TrainerState.UNAVAILABLE)
