"""The real engine process, driven through its pipes; no Qt."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from safetensors.torch import load_file

from macapp.engine import networks, process, training
from macapp.engine.devices import Cpu
from macapp.engine.service import Service
from macapp.protocol import (
    Command,
    EngineReady,
    EpochDone,
    Folders,
    JobEnded,
    JobFailed,
    JobPaused,
    JobResumed,
    JobStarted,
    Pause,
    Quit,
    Resume,
    SaveWeights,
    StartTraining,
    StepsDone,
    StillTesting,
    Stop,
    TrainingConfig,
    WeightsSaved,
)

if TYPE_CHECKING:
    from pathlib import Path

    from macapp.engine.datasets import Dataset

StartEngine = Callable[..., "Engine"]
LONG = TrainingConfig(device="cpu", epochs=100)
SHORT = TrainingConfig(device="cpu", epochs=1, batch_size=1024)


class Engine:
    """An engine process and what it said."""

    def __init__(self, main: Any, folders: Folders) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.stderr, their_stderr = context.Pipe(duplex=False)
        self.process = context.Process(
            target=main, args=(theirs, their_stderr, folders), daemon=True
        )
        self.process.start()
        theirs.close()
        their_stderr.close()
        self.said: list[Any] = []
        self.unread: list[Any] = []
        self.messages = 0

    def send(self, command: Command) -> None:
        self.connection.send(command)

    def wait_for(self, kind: type, seconds: float = 30.0) -> Any:
        """Return the next event of a kind."""
        deadline = time.monotonic() + seconds
        while True:
            while self.unread:
                self.said.append(self.unread.pop(0))
                if isinstance(self.said[-1], kind):
                    return self.said[-1]
            if not self.connection.poll(max(0.0, deadline - time.monotonic())):
                break
            self.unread.extend(self.connection.recv())
            self.messages += 1
        raise TimeoutError(f"no {kind.__name__} within {seconds} s, but {self.said[-3:]}")

    def losses(self) -> np.ndarray[Any, Any]:
        return np.concatenate([x.losses for x in self.said if isinstance(x, StepsDone)])


@pytest.fixture
def start(resource_folder: Path) -> Iterator[StartEngine]:
    engines: list[Engine] = []

    def start(
        resources: Path = resource_folder,
        *,
        main: Any = process.main,
        wait_until_ready: bool = True,
        **folders: str,
    ) -> Engine:
        engine = Engine(main, Folders(str(resources), **folders))
        engines.append(engine)
        if wait_until_ready:
            engine.wait_for(EngineReady)
        return engine

    yield start
    for engine in engines:
        engine.process.kill()
        engine.process.join()


def test_a_job_is_trained_with_few_messages(start: StartEngine) -> None:
    engine = start()
    started = time.monotonic()
    engine.send(StartTraining(1, TrainingConfig(device="cpu", epochs=1)))
    assert engine.wait_for(JobEnded) == JobEnded(1, "finished")
    seconds = time.monotonic() - started
    ready, begun, *events, epoch, ended = engine.said
    assert [status.kind for status in ready.devices if status.ready][-1] == "cpu"
    assert begun == JobStarted(1, "cpu", 21_840, 938, 1)
    assert len(engine.losses()) == 938
    assert engine.messages <= 20 * seconds
    assert {type(event) for event in events} - {StillTesting} == {StepsDone}
    assert isinstance(epoch, EpochDone)
    assert epoch.test_accuracy > 0.94
    assert ended == JobEnded(1, "finished")


class OneJob:
    """An inbox with one job and nothing else, for a service in this process."""

    def __init__(self, config: TrainingConfig) -> None:
        self._commands = [StartTraining(1, config), None]

    def next(self) -> StartTraining | None:
        return self._commands.pop(0)

    def next_request(self) -> None:
        return None

    def is_stopped(self, _job: int) -> bool:
        return False

    is_paused = is_stopped


class Messages:
    """The sending end of a pipe that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, message: tuple[Any, ...]) -> None:
        self.sent.append(message)


def test_short_epochs_share_a_message(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainingConfig(epochs=100, batch_size=500)
    parts = networks.build("article", 1), digits, Cpu()
    monkeypatch.setattr(training, "assemble", lambda *_arguments: parts)
    pipe, inbox = Messages(), OneJob(config)
    started = time.monotonic()
    Service(cast("Any", pipe), cast("Any", inbox), Folders("unused")).run()
    seconds = time.monotonic() - started
    events = [event for message in pipe.sent for event in message]
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [*range(1, 101)]
    assert sum(len(event.losses) for event in events if isinstance(event, StepsDone)) == 200
    # EngineReady, JobStarted and JobEnded go at once.
    assert len(pipe.sent) <= 20 * seconds + 3
    assert isinstance(events[-1], JobEnded)


def test_stop_is_answered_within_a_second_and_the_network_can_be_saved(
    start: StartEngine, tmp_path: Path
) -> None:
    engine = start()
    engine.send(StartTraining(1, LONG))
    engine.wait_for(StepsDone)
    engine.send(Stop(1))
    assert engine.wait_for(JobEnded, 1.0) == JobEnded(1, "stopped")
    path = tmp_path / "network.safetensors"
    engine.send(SaveWeights(str(path)))
    assert engine.wait_for(WeightsSaved).failure is None
    assert sum(tensor.numel() for tensor in load_file(path).values()) == 21_840


def test_a_paused_run_goes_on_as_if_it_never_was(start: StartEngine) -> None:
    engine = start()
    engine.send(StartTraining(1, SHORT))
    engine.wait_for(JobEnded)
    plain = engine.losses()
    engine.said.clear()
    engine.send(StartTraining(2, SHORT))
    engine.send(Pause(2))
    engine.wait_for(JobPaused)
    assert not engine.connection.poll(0.5)
    engine.send(Resume(2))
    engine.wait_for(JobResumed, 1.0)
    engine.wait_for(JobEnded)
    np.testing.assert_array_equal(engine.losses(), plain)


def test_a_paused_job_answers_requests_and_can_be_stopped(
    start: StartEngine, tmp_path: Path
) -> None:
    engine = start()
    engine.send(StartTraining(1, LONG))
    engine.send(Pause(1))
    engine.wait_for(JobPaused)
    engine.send(SaveWeights(str(tmp_path / "paused.safetensors")))
    assert engine.wait_for(WeightsSaved, 1.0).failure is None
    engine.send(Stop(1))
    assert engine.wait_for(JobEnded, 1.0) == JobEnded(1, "stopped")
    assert not any(isinstance(event, JobResumed) for event in engine.said)


def test_requests_are_answered_between_two_steps(start: StartEngine, tmp_path: Path) -> None:
    engine = start()
    engine.send(StartTraining(1, LONG))
    engine.wait_for(StepsDone)
    engine.send(SaveWeights(str(tmp_path / "running.safetensors")))
    assert engine.wait_for(WeightsSaved, 1.0).failure is None
    engine.wait_for(StepsDone)  # it goes on
    engine.send(SaveWeights(str(tmp_path / "no such folder" / "x.safetensors")))
    assert "could not be saved" in str(engine.wait_for(WeightsSaved, 1.0).failure.what)
    engine.wait_for(StepsDone)


def test_jobs_wait_for_each_other_and_a_queued_one_can_be_stopped(start: StartEngine) -> None:
    engine = start()
    engine.send(StartTraining(1, SHORT))
    engine.send(StartTraining(2, SHORT))
    assert engine.wait_for(JobEnded) == JobEnded(1, "finished")
    engine.send(StartTraining(3, SHORT))
    engine.send(Stop(3))
    assert engine.wait_for(JobEnded) == JobEnded(2, "stopped")
    assert engine.wait_for(JobEnded) == JobEnded(3, "stopped")


def test_there_is_nothing_to_save_before_the_first_job(start: StartEngine, tmp_path: Path) -> None:
    engine = start()
    engine.send(SaveWeights(str(tmp_path / "x")))
    assert "no trained network" in str(engine.wait_for(WeightsSaved).failure.what)


def test_quit_ends_a_running_job_and_the_process_with_code_0(start: StartEngine) -> None:
    engine = start()
    engine.send(StartTraining(1, LONG))
    engine.wait_for(StepsDone)
    engine.send(Quit())
    engine.process.join(2)
    assert engine.process.exitcode == 0


@pytest.mark.parametrize("moment", ["loading torch", "idle", "training", "paused"])
def test_the_engine_ends_with_its_window(start: StartEngine, moment: str) -> None:
    """A closed pipe is all that the engine sees of a window that was killed."""
    engine = start(wait_until_ready=moment != "loading torch")
    if moment in ("training", "paused"):
        engine.send(StartTraining(1, LONG))
        engine.wait_for(StepsDone)
    if moment == "paused":
        engine.send(Pause(1))
        engine.wait_for(JobPaused)
    if moment == "loading torch":
        time.sleep(0.5)
    engine.connection.close()
    engine.process.join(2)
    assert engine.process.exitcode == 0


def test_what_c_code_prints_arrives(start: StartEngine) -> None:
    """Python's fault handler is such code: it writes to the file descriptor 2."""
    os.environ["PYTHONFAULTHANDLER"] = "1"
    try:
        engine = start()
    finally:
        del os.environ["PYTHONFAULTHANDLER"]
    assert engine.process.pid is not None
    os.kill(engine.process.pid, 6)
    engine.process.join()
    assert engine.process.exitcode == -6
    assert b"Fatal Python error: Aborted" in os.read(engine.stderr.fileno(), 65536)


def test_damaged_data_fails_the_job_and_not_the_engine(
    start: StartEngine, resource_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(resource_folder / "mnist", tmp_path / "mnist")
    images = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    whole = images.read_bytes()
    engine = start(tmp_path)
    for damaged in (whole[:-1], whole[:1000] + b"?" + whole[1001:]):
        images.write_bytes(damaged)
        engine.send(StartTraining(1, SHORT))
        failure = engine.wait_for(JobFailed).failure
        assert "train-images-idx3-ubyte.gz is damaged" in str(failure.what)
        assert "0b367032e93c5d0c" in str(failure.what)  # the expected digest
    images.write_bytes(whole)
    engine.send(StartTraining(2, SHORT))
    assert engine.wait_for(JobEnded) == JobEnded(2, "finished")
