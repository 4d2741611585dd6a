"""The real engine process with a Metal that fails as real ones do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from macapp.protocol import (
    BatchHalved,
    CheckpointSaved,
    DevicesFound,
    EngineReady,
    EpochDone,
    Inspect,
    Inspection,
    JobEnded,
    JobFailed,
    JobStarted,
    RunNotice,
    StartTraining,
    StepsDone,
    TrainingConfig,
)
from tests import faults_of_mps
from tests.engine.test_service import Engine, StartEngine, start
from tests.simulated_mps import LIMIT, engine

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["start"]
METAL = TrainingConfig(device="mps", epochs=4)
# One each of what the texts have in common; the whole table is tested without a process.
RAISED = [
    number
    for number, (_, _, name) in enumerate(faults_of_mps.EXCEPTIONS)
    if name != "out_of_memory"
][::4]


def run(started: Engine, config: TrainingConfig = METAL, **job: Any) -> Any:
    """Train, and return how the job ended."""
    started.send(StartTraining(1, config, **job))
    while True:
        started.wait_for(object)
        if isinstance(started.said[-1], (JobEnded, JobFailed)):
            return started.said[-1]


def said(started: Engine, kind: type) -> list[Any]:
    return [event for event in started.said if isinstance(event, kind)]


def notices(started: Engine) -> dict[str, str]:
    return {notice.kind: str(notice.message) for notice in said(started, RunNotice)}


def test_a_healthy_metal_trains(start: StartEngine) -> None:
    started = start(main=engine("none"))
    assert run(started) == JobEnded(1, "finished")
    assert said(started, JobStarted)[0].device == "mps"
    assert said(started, StepsDone)[-1].memory.reserved == 2**22
    assert notices(started) == {}
    assert said(started, EpochDone)[-1].test_accuracy > 0.9


@pytest.mark.parametrize("number", range(7))
def test_every_wording_of_no_memory_halves_the_batch(start: StartEngine, number: int) -> None:
    started = start(main=engine(f"memory {number}"))
    assert run(started) == JobEnded(1, "finished")
    halved = said(started, BatchHalved)
    assert [event.batch_size for event in halved] == [32, LIMIT]
    assert {(event.epoch, event.step) for event in halved} == {(2, 16)}
    assert [event.epoch for event in said(started, EpochDone)] == [1, 2, 3, 4]
    assert said(started, EpochDone)[-1].step == 16 + 3 * 63
    assert "batch of 32, so epoch 2 began anew with 16 pictures" in notices(started)["batch"]
    assert said(started, EpochDone)[-1].test_accuracy > 0.9


def test_at_batch_1_it_stops_with_advice(start: StartEngine) -> None:
    failed = run(start(main=engine("nothing_fits")))
    assert "even for a batch of 1" in str(failed.failure.what)
    assert "smaller network" in str(failed.failure.remedy)
    assert failed.failure.blames_device


@pytest.mark.parametrize("number", RAISED)
def test_what_is_raised_is_explained_and_the_engine_goes_on(
    start: StartEngine, number: int, tmp_path: Path
) -> None:
    started = start(main=engine(f"exception {number}"), checkpoints=str(tmp_path))
    failed = run(started)
    assert isinstance(failed, JobFailed)
    assert faults_of_mps.EXCEPTIONS[number][0] in failed.failure.details
    assert "unexpected error" not in str(failed.failure.what)
    (saved,) = said(started, CheckpointSaved)
    assert saved.epoch == 1
    started.said.clear()
    cpu = TrainingConfig(device="cpu", epochs=3)
    assert run(started, cpu, checkpoint=saved.path) == JobEnded(1, "finished")
    begun = said(started, JobStarted)[0]
    assert (begun.first_epoch, begun.first_step, begun.device) == (2, 17, "cpu")
    assert [event.epoch for event in said(started, EpochDone)] == [2, 3]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nan", "no longer a number since step 25"),
        ("stuck", "left a part of the network unchanged"),
        ("parity", "cannot be trusted with this network"),
    ],
)
def test_wrong_numbers_are_seen(start: StartEngine, case: str, words: str) -> None:
    failed = run(start(main=engine(case)))
    assert words in str(failed.failure.what)
    assert failed.failure.topic == "numbers"


def test_operators_that_fell_back_are_counted_in_every_run(start: StartEngine) -> None:
    started = start(main=engine("fallback"))
    for _ in range(2):  # PyTorch itself warns once a process
        started.said.clear()
        run(started)
        assert notices(started)["fallback"].startswith("2 operators ran on the CPU")
        assert "im2col, col2im" in notices(started)["fallback"]
        assert len(said(started, RunNotice)) <= 2


@pytest.mark.parametrize("case", ["process grows", "driver grows"])
def test_memory_that_grows_is_told(start: StartEngine, case: str) -> None:
    started = start(main=engine(case))
    assert run(started) == JobEnded(1, "finished")
    assert "memory has grown by" in notices(started)["growth"]


def test_a_sleep_marks_the_epochs_time(start: StartEngine) -> None:
    started = start(main=engine("sleep"))
    run(started)
    assert [event.epoch for event in said(started, EpochDone) if event.slept] == [2]
    assert "slept during epoch 2" in notices(started)["sleep"]


@pytest.mark.parametrize("case", ["missing attributes", "slow_first"])
def test_it_trains_all_the_same(start: StartEngine, case: str) -> None:
    assert run(start(main=engine(case))) == JobEnded(1, "finished")


def test_metal_is_tested_before_it_is_offered(start: StartEngine, tmp_path: Path) -> None:
    main = engine("none", smoke_test="assignment")
    started = start(main=main, cache=str(tmp_path))
    ready = said(started, EngineReady)[0]
    assert ready.devices[0].verdict == "checking"
    found = started.wait_for(DevicesFound)
    assert found.devices[0].verdict == "failed"
    assert "writing into a part of a tensor" in str(found.devices[0].reason)
    failed = run(started)
    assert "computes wrong numbers" in str(failed.failure.what)
    again = start(main=main, cache=str(tmp_path))
    assert said(again, EngineReady)[0].devices[0].verdict == "failed"  # remembered


def test_a_run_is_inspected_before_it_begins(start: StartEngine) -> None:
    started = start(main=engine("none"))
    for optimizer in ("sgd", "adam", "adamw"):
        config = TrainingConfig(device="mps", optimizer=optimizer)
        started.send(Inspect(config))
        found = started.wait_for(Inspection)
        assert (found.config, found.device, found.on_cpu) == (config, "mps", ())
        assert found.is_complete
        assert 1e6 < found.needed_bytes < 1e8
        assert found.fitting_batch_size == 64


def test_a_checkpoint_that_is_gone_is_said(start: StartEngine, tmp_path: Path) -> None:
    failed = run(start(main=engine("none")), checkpoint=str(tmp_path / "gone.pt"))
    assert "can no longer be read" in str(failed.failure.what)
