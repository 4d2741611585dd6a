"""What MPS must never be asked, in any job of the app."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from macapp.engine import checkpoint, devices, networks, smoke_test, training
from macapp.engine.evaluation import evaluate
from macapp.engine.inspection import inspect
from macapp.protocol import (
    BatchHalved,
    CheckpointSaved,
    EpochDone,
    TrainingConfig,
    fields,
)
from tests import faults_of_mps
from tests.engine.fake_mps import FakeMemory, FakeMps, MisuseError, MpsTensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from macapp.engine.datasets import Dataset

pytestmark = pytest.mark.usefixtures("metal")
NETWORKS = next(info.choices for info in fields() if info.name == "network")
OPTIMIZERS = next(info.choices for info in fields() if info.name == "optimizer")


# The stand-in is strict ---------------------------------------------------------------------------


def there(*shape: int) -> torch.Tensor:
    return torch.rand(shape).to("mps")


def in_a_thread(call: Callable[[], object]) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize(
    ("error", "words", "misuse"),
    [
        (MisuseError, "channels_last", lambda: there(1, 2, 3, 3).to(
            memory_format=torch.channels_last)),
        (MisuseError, "channels_last", lambda: nn.Conv2d(1, 1, 3).to("mps").to(
            memory_format=torch.channels_last)),
        (MisuseError, "channels_last", lambda: there(1, 2, 3, 3).contiguous(
            memory_format=torch.channels_last)),
        (MisuseError, "channels_last", lambda: torch.empty(
            1, 2, 3, 3, device="mps", memory_format=torch.channels_last)),
        (MisuseError, "non_blocking", lambda: torch.rand(2).to("mps", non_blocking=True)),
        (MisuseError, "non_blocking", lambda: there(2).to("cpu", non_blocking=True)),
        (MisuseError, "non_blocking", lambda: there(2).copy_(torch.rand(2), non_blocking=True)),
        (MisuseError, "non_blocking", lambda: there(2).copy_(torch.rand(2), True)),
        (MisuseError, "non_blocking", lambda: nn.Linear(1, 1).to("mps", non_blocking=True)),
        (MisuseError, "pinned", lambda: there(2).pin_memory()),
        (TypeError, "float64", lambda: there(2).double()),
        (TypeError, "float64", lambda: there(2).to(torch.float64)),
        (TypeError, "float64", lambda: torch.rand(2, dtype=torch.float64).to("mps")),
        (TypeError, "float64", lambda: torch.zeros(2, dtype=torch.float64, device="mps")),
        (TypeError, "float64", lambda: there(2).sum(dtype=torch.float64)),
        (TypeError, "numpy", lambda: there(2).numpy()),
        (RuntimeError, "same device", lambda: there(2) + torch.rand(2)),
        (RuntimeError, "same device", lambda: F.linear(there(1, 2), torch.rand(1, 2))),
        (RuntimeError, "same device", lambda: torch.cat([there(1), torch.rand(1)])),
        (MisuseError, "second thread", lambda: in_a_thread(torch.mps.empty_cache)),
        (MisuseError, "second thread", lambda: in_a_thread(
            torch.mps.driver_allocated_memory)),
    ],
)  # fmt: skip
def test_the_stand_in_refuses(
    error: type[Exception], words: str, misuse: Callable[[], object]
) -> None:
    with pytest.raises(error, match=words):
        misuse()


def test_another_thread_may_not_touch_a_tensor() -> None:
    tensor = there(2)
    with pytest.raises(MisuseError, match="second thread"):
        in_a_thread(lambda: tensor + 1)


def test_the_stand_in_computes() -> None:
    network = nn.Linear(3, 2).to("mps")
    assert network.weight.device.type == "mps"
    loss = network(there(4, 3)).sum()
    loss.backward()
    assert type(loss) is type(network.weight.grad) is MpsTensor
    assert type(loss.detach().cpu()) is torch.Tensor
    home = torch.zeros(2)
    home.copy_(there(2))
    assert type(home) is torch.Tensor


# Every job keeps the rules ------------------------------------------------------------------------


def config_of(**changes: Any) -> TrainingConfig:
    return msgspec.structs.replace(TrainingConfig(), **changes)


@pytest.fixture
def _no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid what would happen on the CPU's side."""

    def forbidden(*_arguments: Any, **_options: Any) -> None:
        pytest.fail("a worker or pinned memory was asked for")

    monkeypatch.setattr(DataLoader, "__init__", forbidden)
    monkeypatch.setattr(torch.Tensor, "pin_memory", forbidden)


@pytest.mark.usefixtures("_no_workers")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_training_and_going_on(
    digits: Dataset, tmp_path: Path, network: str, optimizer: str
) -> None:
    config = config_of(
        epochs=2, network=network, optimizer=optimizer, learning_rate=0.002, weight_decay=0.01
    )
    path = tmp_path / "run.pt"
    trained = networks.build(network, 1)
    events = list(training.train(config, trained, digits, FakeMps(), checkpoint_path=path))
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [1, 2]
    assert sum(isinstance(event, CheckpointSaved) for event in events) == 1
    checkpoint.save_weights(trained, tmp_path / "weights.safetensors")

    state = checkpoint.load(path)
    again = networks.build(network, 2)
    events = list(training.train(config, again, digits, FakeMps(), start=state))
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [2]
    for one, other in zip(trained.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.cpu(), other.cpu())


@pytest.mark.usefixtures("_no_workers")
def test_a_small_gpu(digits: Dataset, metal: FakeMemory) -> None:
    """Streamed pictures, a halved batch, a test in smaller batches."""

    class Small(FakeMps):
        """Runs out of memory with more than 30 pictures to train, or 200 to test."""

        def free_bytes(self) -> int:
            return 2**20

        def place(self, network: nn.Module) -> nn.Module:
            placed = super().place(network)
            placed.register_forward_pre_hook(self._check_size)
            return placed

        @staticmethod
        def _check_size(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if len(inputs[0]) > (30 if network.training else 200):
                raise RuntimeError(faults_of_mps.EXCEPTIONS[0][0])

    config = TrainingConfig(epochs=1)
    events = list(training.train(config, networks.build("article", 1), digits, Small()))
    assert [event.batch_size for event in events if isinstance(event, BatchHalved)] == [32, 16]
    assert isinstance(events[-1], EpochDone)
    assert metal.caches_freed > 2


@pytest.mark.usefixtures("_no_workers")
def test_a_test_pass(digits: Dataset) -> None:
    device = FakeMps()
    (score,) = evaluate(device.place(networks.build("article", 1)), digits, device)
    assert score is not None


@pytest.mark.usefixtures("_no_workers")
def test_the_smoke_test() -> None:
    assert list(smoke_test.stages(FakeMps)) == ["memory", "training", "assignment", "argmax"]


@pytest.mark.usefixtures("_no_workers")
@pytest.mark.parametrize("network", NETWORKS)
def test_an_inspection(network: str) -> None:
    for optimizer in OPTIMIZERS:
        config = config_of(network=network, optimizer=optimizer)
        assert inspect(config, FakeMps()).device == "mps"


def test_the_real_class_is_under_test() -> None:
    assert devices.Mps in FakeMps.__mro__
    assert FakeMps().torch_device.type == "mps"
    memory = FakeMps().memory()
    assert memory is not None
    assert memory.reserved == 2**22
