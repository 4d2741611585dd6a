"""The trainer with engines that are real processes but know no torch."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from macapp import faults
from macapp.engine_handle import ProcessOutcome
from macapp.protocol import EpochDone, Folders, JobEnded, JobFailed, TrainingConfig, WeightsSaved
from macapp.trainer import Trainer, TrainerState
from tests import fake_engines

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot

SIGNALS = (
    "engine_ready",
    "engine_lost",
    "job_started",
    "steps_done",
    "epoch_done",
    "job_ended",
    "job_failed",
    "weights_saved",
)
StartTrainer = Callable[..., "Recorder"]


class Recorder:
    """A running trainer and all that it said, in order."""

    def __init__(self, trainer: Trainer, qtbot: QtBot) -> None:
        self.trainer = trainer
        self.qtbot = qtbot
        self.states: list[TrainerState] = []
        self.said: list[Any] = []
        trainer.state_changed.connect(self.states.append)
        for name in SIGNALS:
            getattr(trainer, name).connect(self.said.append)

    def wait_for(self, kind: type, timeout_ms: int = 10_000) -> Any:
        """Return the first of a kind that was said, waiting for it if need be."""
        self.qtbot.waitUntil(
            lambda: any(isinstance(x, kind) for x in self.said), timeout=timeout_ms
        )
        return next(x for x in self.said if isinstance(x, kind))

    def wait_for_state(self, state: TrainerState) -> None:
        self.qtbot.waitUntil(lambda: self.states[-1:] == [state], timeout=10_000)

    @property
    def epochs(self) -> list[int]:
        return [event.epoch for event in self.said if isinstance(event, EpochDone)]


@pytest.fixture
def start(qtbot: QtBot) -> Iterator[StartTrainer]:
    recorders: list[Recorder] = []

    def start(engine: Any) -> Recorder:
        recorder = Recorder(Trainer(engine, Folders("unused")), qtbot)
        recorders.append(recorder)
        recorder.trainer.start()
        return recorder

    yield start
    for recorder in recorders:
        recorder.trainer.shutdown()
        assert recorder.trainer.wait(5000)
    assert multiprocessing.active_children() == []


def test_a_job_is_trained_and_reported_in_order(start: StartTrainer) -> None:
    run = start(fake_engines.quick)
    job = run.trainer.train(TrainingConfig(epochs=2))
    assert run.wait_for(JobEnded) == JobEnded(job, "finished")
    assert run.epochs == [1, 2]
    run.wait_for_state(TrainerState.READY)
    assert run.states == [
        TrainerState.WAITING,
        TrainerState.READY,
        TrainerState.RUNNING,
        TrainerState.READY,
    ]


def test_a_job_asked_for_early_waits_and_then_runs(start: StartTrainer) -> None:
    run = start(fake_engines.late)
    run.trainer.train(TrainingConfig(epochs=1))
    run.wait_for_state(TrainerState.WAITING)
    run.wait_for(JobEnded)
    assert run.epochs == [1]


def test_a_waiting_job_can_be_stopped(start: StartTrainer) -> None:
    run = start(fake_engines.late)
    job = run.trainer.train(TrainingConfig(epochs=1))
    run.trainer.stop()
    assert run.wait_for(JobEnded, 900) == JobEnded(job, "cancelled")
    run.wait_for_state(TrainerState.READY)
    assert run.epochs == []


def test_pause_holds_and_resume_goes_on(start: StartTrainer) -> None:
    run = start(fake_engines.slow)
    run.trainer.train(TrainingConfig(epochs=2))
    run.wait_for_state(TrainerState.RUNNING)
    run.trainer.pause()
    run.wait_for_state(TrainerState.PAUSED)
    count = len(run.said)
    run.qtbot.wait(300)
    assert len(run.said) == count
    run.trainer.resume()
    run.wait_for(JobEnded)
    assert run.epochs == [1, 2]


def test_stop_keeps_the_epochs(start: StartTrainer) -> None:
    run = start(fake_engines.slow)
    job = run.trainer.train(TrainingConfig(epochs=100))
    run.wait_for(EpochDone)
    run.trainer.stop()
    assert run.wait_for(JobEnded, 1000) == JobEnded(job, "stopped")
    assert run.epochs[0] == 1


def test_stop_ends_a_paused_job(start: StartTrainer) -> None:
    run = start(fake_engines.slow)
    run.trainer.train(TrainingConfig(epochs=100))
    run.wait_for_state(TrainerState.RUNNING)
    run.trainer.pause()
    run.wait_for_state(TrainerState.PAUSED)
    run.trainer.stop()
    assert run.wait_for(JobEnded).outcome == "stopped"
    run.wait_for_state(TrainerState.READY)


@pytest.mark.parametrize(
    ("engine", "signal_name", "words"),
    [
        (fake_engines.aborts, "SIGABRT", "Metal refused a computation and stopped the engine"),
        (fake_engines.is_killed, "SIGKILL", "The system ended the training engine"),
    ],
)
def test_an_engine_that_dies_is_explained_and_replaced(
    start: StartTrainer, engine: Any, signal_name: str, words: str
) -> None:
    run = start(engine)
    job = run.trainer.train(TrainingConfig(epochs=5))
    failed = run.wait_for(JobFailed)
    assert failed.job == job
    assert words in str(failed.failure.what)
    assert "Traceback" not in str(failed.failure.what) + str(failed.failure.remedy)
    assert signal_name in failed.failure.details
    assert "failed assertion `it broke'" in failed.failure.details  # file descriptor 2
    assert run.epochs == [1]  # kept

    run.wait_for_state(TrainerState.READY)
    run.said.clear()
    run.trainer.train(TrainingConfig(epochs=1))  # the next one works: it dies only in epoch 2
    run.wait_for(JobEnded)
    assert run.epochs == [1]


def test_the_end_of_an_engine_is_seen_though_its_child_holds_the_pipe(start: StartTrainer) -> None:
    run = start(fake_engines.leaves_a_child)
    run.wait_for_state(TrainerState.READY)
    run.trainer.train(TrainingConfig())
    failed = run.wait_for(JobFailed, 2500)
    child = psutil.Process(int(failed.failure.details.split()[-1]))
    assert child.is_running()
    child.kill()


def test_an_engine_killed_between_jobs_is_replaced(start: StartTrainer) -> None:
    run = start(fake_engines.quick)
    run.wait_for_state(TrainerState.READY)
    run.said.clear()
    multiprocessing.active_children()[0].kill()
    run.qtbot.waitUntil(lambda: len(run.said) == 2, timeout=10_000)
    lost, ready = run.said
    assert "It starts anew" in str(lost.remedy)
    assert ready == fake_engines.READY


def test_an_engine_that_cannot_start_is_given_up_until_the_user_tries(start: StartTrainer) -> None:
    run = start(fake_engines.never_ready)
    run.wait_for_state(TrainerState.UNAVAILABLE)
    (failure,) = run.said
    assert "cannot be started" in str(failure.what)
    assert "dyld: Symbol not found" in failure.details
    assert "exit code 3" in failure.details
    run.said.clear()
    run.trainer.train(TrainingConfig())
    assert "cannot be started" in str(run.wait_for(JobFailed).failure.what)


def test_force_stop_replaces_an_engine_that_does_not_answer(start: StartTrainer) -> None:
    run = start(fake_engines.deaf)
    job = run.trainer.train(TrainingConfig())
    run.wait_for_state(TrainerState.RUNNING)
    run.trainer.stop()
    run.wait_for_state(TrainerState.STOPPING)
    run.trainer.force_stop()
    assert run.wait_for(JobEnded) == JobEnded(job, "forced")
    run.wait_for_state(TrainerState.READY)


@pytest.mark.parametrize("engine", [fake_engines.deaf, fake_engines.slow, fake_engines.late])
def test_shutdown_ends_within_four_seconds_whatever_the_engine_does(
    qtbot: QtBot, engine: Any
) -> None:
    trainer = Trainer(engine, Folders("unused"))
    trainer.start()
    trainer.train(TrainingConfig(epochs=1000))
    qtbot.wait(300)
    started = time.monotonic()
    trainer.shutdown()
    assert trainer.wait(5000)
    assert time.monotonic() - started < 4
    assert multiprocessing.active_children() == []
    assert [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())] == []


def test_weights_cannot_be_saved_before_the_engine_is_ready(start: StartTrainer) -> None:
    run = start(fake_engines.late)
    run.trainer.save_weights("/nowhere/x.safetensors")
    assert run.wait_for(WeightsSaved).failure is not None


@pytest.mark.parametrize(
    ("exit_code", "name"), [(-6, "SIGABRT"), (-11, "SIGSEGV"), (-250, "signal 250"), (1, "")]
)
def test_outcomes_name_their_signal(exit_code: int, name: str) -> None:
    outcome = ProcessOutcome(exit_code, "")
    assert faults.signal_name(outcome.exit_code) == name
    details = outcome.failure(had_job=True).details
    assert (name or "exit code 1") in details
