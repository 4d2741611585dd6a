"""A real GPU, where there is one: NVIDIA's, since continuous integration has no Mac."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from macapp.engine import (
    coverage,
    environment,
    inspection,
    networks,
    process,
    smoke_test,
    training,
)
from macapp.engine.datasets import load
from macapp.engine.devices import Cuda
from macapp.engine.diagnosis import DeviceSurvey
from macapp.protocol import (
    BatchHalved,
    EpochDone,
    Folders,
    JobEnded,
    JobFailed,
    RunNotice,
    StartTraining,
    StepsDone,
    TrainingConfig,
    fields,
)
from tests.engine.test_service import StartEngine, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
__all__ = ["start"]
NETWORKS = next(info.choices for info in fields() if info.name == "network")
LARGE = TrainingConfig(
    device="cuda", epochs=3, batch_size=8192, optimizer="adam", learning_rate=0.01
)


@pytest.fixture
def _all_memory() -> Iterator[None]:
    """Give back what the test keeps from the process."""
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def train(config: TrainingConfig, resources: Path) -> list[Any]:
    network, dataset = networks.build(config.network, config.seed), load(config.dataset, resources)
    return list(training.train(config, network, dataset, Cuda()))


def accuracy(events: list[Any]) -> float:
    last = events[-1]
    assert isinstance(last, EpochDone)
    return last.test_accuracy


@pytest.mark.usefixtures("_all_memory")
def test_memory_that_runs_out_is_survived_with_the_accuracy_expected(
    resource_folder: Path,
) -> None:
    """The GPU gives this process too little for a batch of 8192: a real out-of-memory."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    unlimited = train(LARGE, resource_folder)
    needed = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.7 * needed / total)

    events = train(LARGE, resource_folder)
    halved = [event for event in events if isinstance(event, BatchHalved)]
    notices = [event for event in events if isinstance(event, RunNotice)]
    assert halved
    assert halved[0].batch_size == 4096
    assert {notice.kind for notice in notices} == {"batch"}
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [1, 2, 3]
    print(
        f"needed {needed / 1e6:.0f} MB, given {0.7 * needed / 1e6:.0f} MB: "
        f"batch {halved[-1].batch_size}, accuracy {accuracy(events):.4f}; "
        f"unlimited {accuracy(unlimited):.4f}"
    )
    assert accuracy(events) > accuracy(unlimited) - 0.01
    assert accuracy(events) > 0.95


def _nearly_no_memory(connection: Connection, stderr: Connection, folders: Folders) -> None:
    environment.prepare()
    torch.cuda.set_per_process_memory_fraction(1e-5)  # some MB
    process.main(connection, stderr, folders)


def test_with_no_memory_for_one_picture_it_says_so(start: StartEngine) -> None:
    """Through a real engine, which goes on with the next job."""
    engine = start(main=_nearly_no_memory)
    engine.send(StartTraining(1, TrainingConfig(device="cuda", epochs=1, batch_size=64)))
    failed = engine.wait_for(JobFailed).failure
    assert "memory" in str(failed.what)
    assert failed.topic == "memory"
    engine.send(StartTraining(2, TrainingConfig(device="cpu", epochs=1, batch_size=1024)))
    assert engine.wait_for(JobEnded) == JobEnded(2, "finished")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("batch_size", [64, 1024, 8192])
def test_the_memory_of_a_step_is_estimated(network: Any, batch_size: int) -> None:
    config = TrainingConfig(network=network, batch_size=batch_size, optimizer="adam")
    model, optimizer, images, labels = coverage.sample(config, batch_size)
    model = model.to("cuda")
    optimizer = torch.optim.Adam(model.parameters())
    images, labels = images.to("cuda"), labels.to("cuda")
    for _ in range(2):  # the first one makes the optimizer's memory
        torch.cuda.reset_peak_memory_stats()
        training.training_step(model, optimizer, images, labels)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    estimate = inspection.memory_needs(config).of(batch_size)
    print(f"{network} {batch_size}: estimated {estimate / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB")
    assert estimate > 0.8 * (peak - 2**26)  # the libraries' own workspaces are not in it
    assert estimate < 2.5 * peak


def test_the_smoke_test_passes() -> None:
    assert smoke_test.run(smoke_test.command("cuda")).outcome == "passed"
    statuses = {status.kind: status for status in DeviceSurvey().statuses}
    assert statuses["cuda"].ready


def test_an_engine_trains(start: StartEngine) -> None:
    engine = start()
    engine.send(StartTraining(1, TrainingConfig(device="cuda", epochs=2, batch_size=256)))
    assert engine.wait_for(JobEnded) == JobEnded(1, "finished")
    steps = [event for event in engine.said if isinstance(event, StepsDone)]
    assert all(event.memory is not None and event.memory.allocated > 2**20 for event in steps)
    assert not [event for event in engine.said if isinstance(event, RunNotice)]


def test_a_run_in_a_terminal(tmp_path: Path) -> None:
    command = ["train", "--preset", "faster", "--device", "cuda", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "macapp", *command],
        capture_output=True, text=True, check=False, timeout=100, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["epochs"][-1]["test_accuracy"] > 0.97
    assert not result["notices"]
