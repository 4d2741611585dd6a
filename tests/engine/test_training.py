from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import torch

from macapp.engine import batches, networks, optimizers, training
from macapp.engine.batches import ResidentBatches, StreamedBatches
from macapp.engine.devices import Cpu, Device
from macapp.engine.diagnosis import DeviceSurvey
from macapp.engine.evaluation import evaluate
from macapp.engine.timing import Pace
from macapp.messages import UserError
from macapp.protocol import EpochDone, JobStarted, StepsDone, TrainingConfig
from tests.engine.fake_mps import FakeMps

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from macapp.engine.datasets import Dataset

pytestmark = pytest.mark.usefixtures("metal")


def run(config: TrainingConfig, data: Dataset, device: Device | None = None) -> list[Any]:
    network = networks.build(config.network, config.seed)
    return list(training.train(config, network, data, device or Cpu()))


def losses(events: list[Any]) -> NDArray[np.float32]:
    return np.concatenate([event.losses for event in events if isinstance(event, StepsDone)])


def weights(network: torch.nn.Module) -> torch.Tensor:
    """All parameters in one vector, copied."""
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_events_come_in_order_and_miss_no_step(digits: Dataset) -> None:
    events = run(TrainingConfig(epochs=2, batch_size=64), digits)
    assert events[0] == JobStarted(0, "cpu", 21_840, 16, 2)  # 1000 / 64, rounded up
    step = 1
    for event in events:
        if isinstance(event, StepsDone):
            assert event.first_step == step
            assert event.losses.dtype == np.float32
            step += len(event.losses)
        elif isinstance(event, EpochDone):
            assert event.step == step - 1 == 16 * event.epoch
    assert step == 33
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [1, 2]


def test_it_learns(digits: Dataset) -> None:
    epochs = [
        e
        for e in run(TrainingConfig(epochs=6, learning_rate=0.05), digits)
        if isinstance(e, EpochDone)
    ]
    assert epochs[-1].test_accuracy > 0.95
    assert epochs[-1].train_loss < epochs[0].train_loss
    assert epochs[-1].images_per_second == pytest.approx(1000 / epochs[-1].seconds)


def test_the_train_loss_is_the_mean_over_pictures(digits: Dataset) -> None:
    events = run(TrainingConfig(epochs=1, batch_size=64), digits)
    sizes = np.full(16, 64)
    sizes[-1] = 1000 - 15 * 64
    expected = float((losses(events) * sizes).sum() / 1000)
    assert events[-1].train_loss == pytest.approx(expected, rel=1e-6)


def test_the_same_seed_gives_the_same_run_and_another_does_not(digits: Dataset) -> None:
    config = TrainingConfig(epochs=2)
    first, again = run(config, digits), run(config, digits)
    np.testing.assert_array_equal(losses(first), losses(again))
    assert first[-1].test_loss == again[-1].test_loss
    other = run(msgspec.structs.replace(config, seed=2), digits)
    assert not np.array_equal(losses(first), losses(other))


def test_it_computes_what_the_articles_loop_computes(digits: Dataset) -> None:
    """The same weights and batches through a plain loop give the same losses."""
    config = TrainingConfig(epochs=1)
    ours = losses(run(config, digits))
    network = networks.build("article", config.seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.5)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(config.seed))
    plain = []
    for first in range(0, 1000, 64):
        chosen = order[first : first + 64]
        images = torch.from_numpy(digits.train.images)[chosen].float() / 255
        images = (images - 0.1307) / 0.3081
        optimizer.zero_grad()
        output = network(images)
        loss = torch.nn.functional.nll_loss(output, torch.from_numpy(digits.train.labels)[chosen])
        loss.backward()
        optimizer.step()
        plain.append(loss.item())
    np.testing.assert_allclose(ours, plain, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_optimizer_moves_every_parameter(digits: Dataset, optimizer: str) -> None:
    config = TrainingConfig(epochs=1, optimizer=optimizer, learning_rate=0.001)  # type: ignore[arg-type]
    network = networks.build("article", 1)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    list(training.train(config, network, digits, Cpu()))
    for old, new in zip(before, network.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_momentum_and_weight_decay_reach_the_optimizer() -> None:
    config = TrainingConfig(momentum=0.25, weight_decay=0.125, learning_rate=0.5)
    made = optimizers.build(config, [torch.nn.Parameter(torch.zeros(1))], Cpu())
    group = made.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.5, 0.25, 0.125)
    assert group["fused"] is True


def test_a_fused_step_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizers._fused_equals_plain.cache_clear()
    plain = torch.optim.SGD.step

    def step(self: Any, closure: Any = None) -> Any:
        result = plain(self, closure)
        if self.param_groups[0].get("fused"):
            with torch.no_grad():
                self.param_groups[0]["params"][0].add_(1e-3)
        return result

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    made = optimizers.build(TrainingConfig(), [torch.nn.Parameter(torch.zeros(1))], Cpu())
    assert not made.param_groups[0].get("fused")
    optimizers._fused_equals_plain.cache_clear()


def test_a_torch_without_fused_sgd_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizers._fused_equals_plain.cache_clear()
    plain = torch.optim.SGD

    def old_sgd(parameters: Any, **options: Any) -> Any:
        if "fused" in options:
            raise TypeError("SGD.__init__() got an unexpected keyword argument 'fused'")
        return plain(parameters, **options)

    monkeypatch.setattr(torch.optim, "SGD", old_sgd)
    made = optimizers.build(TrainingConfig(), [torch.nn.Parameter(torch.zeros(1))], Cpu())
    assert not made.param_groups[0].get("fused")
    optimizers._fused_equals_plain.cache_clear()


def test_a_diverging_run_stops_at_once_with_advice(digits: Dataset) -> None:
    config = TrainingConfig(epochs=50, learning_rate=10.0, momentum=0.9)
    # Without ReLUs, which die and leave a finite loss, nothing holds the weights back.
    torch.manual_seed(1)
    layers = [torch.nn.Linear(784, 50), torch.nn.Linear(50, 10)]
    network = torch.nn.Sequential(torch.nn.Flatten(), *layers, torch.nn.LogSoftmax(1))
    seen: list[Any] = []
    events = training.train(config, network, digits, Cpu())
    with pytest.raises(UserError) as caught:
        seen.extend(events)
    assert isinstance(seen[-1], StepsDone)  # the last losses are shown
    assert not np.isfinite(seen[-1].losses).all()
    assert "no longer a number" in str(caught.value.failure.what)
    assert "Lower the learning rate, for example to 1," in str(caught.value.failure.remedy)


def test_a_closed_generator_leaves_a_trained_network(digits: Dataset) -> None:
    network = networks.build("article", 1)
    before = weights(network)
    events = training.train(TrainingConfig(epochs=5), network, digits, Cpu())
    while not isinstance(next(events), StepsDone):
        pass
    events.close()
    assert not torch.equal(before, weights(network))


def test_few_host_reads(digits: Dataset) -> None:
    """One read a message, two an epoch, some before the second step; none a step."""
    device = FakeMps()
    events = run(TrainingConfig(epochs=3, batch_size=10), digits, device)
    messages = sum(isinstance(event, StepsDone) for event in events)
    assert device.reads == messages + 2 * 3 + 3
    assert len(losses(events)) == 300
    assert messages < 150


def test_the_mps_rules_hold_for_a_whole_run(digits: Dataset) -> None:
    on_mps = run(TrainingConfig(epochs=1), digits, FakeMps())
    on_cpu = run(TrainingConfig(epochs=1), digits)
    np.testing.assert_allclose(losses(on_mps), losses(on_cpu), rtol=1e-4)


def test_streamed_batches_equal_resident_ones(digits: Dataset) -> None:
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(3))
    for device in (Cpu(), FakeMps()):
        resident = ResidentBatches(digits.train, digits, device).epoch(order, 64)
        streamed = StreamedBatches(digits.train, digits, device).epoch(order, 64)
        for (images, labels), (other_images, other_labels) in zip(resident, streamed, strict=True):
            assert torch.equal(images, other_images)
            assert torch.equal(labels, other_labels)
            assert labels.dtype == torch.int64


def test_a_small_device_is_streamed_to(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeMps()
    assert isinstance(batches.make(digits.train, digits, device), ResidentBatches)
    monkeypatch.setattr(device, "free_bytes", lambda: 2**20)
    assert isinstance(batches.make(digits.train, digits, device), StreamedBatches)
    on_small = run(TrainingConfig(epochs=1), digits, device)
    np.testing.assert_allclose(
        losses(on_small), losses(run(TrainingConfig(epochs=1), digits)), rtol=1e-4
    )


def test_evaluation_counts_right_answers(digits: Dataset) -> None:
    class Oracle(torch.nn.Module):
        """Knows the bright row."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            rows = images[:, 0].mean(2)
            scores = torch.stack([rows[:, 2 * k + 4 : 2 * k + 7].mean(1) for k in range(10)], 1)
            return torch.log_softmax(scores * 10, 1)

    (score,) = evaluate(Oracle(), digits, Cpu())
    assert score is not None
    assert score.accuracy == 1.0
    assert score.loss < 0.1


def test_a_wrong_configuration_never_starts(resource_folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        training.assemble(
            TrainingConfig(learning_rate=float("nan")), resource_folder, DeviceSurvey()
        )
    assert str(caught.value.failure.what) == "Learning rate must be a number."


def test_bad_data_is_found_before_training(tmp_path: Path, resource_folder: Path) -> None:
    shutil.copytree(resource_folder / "mnist", tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte\.gz is damaged"):
        training.assemble(TrainingConfig(), tmp_path, DeviceSurvey())


def test_messages_come_at_an_even_pace() -> None:
    pace = Pace(training.MESSAGE_SECONDS)
    counts = []
    for _ in range(12):
        counts.append(pace.steps)
        pace.adapt(pace.steps, pace.steps * 0.002)  # 2 ms a step
    assert counts[:4] == [1, 2, 4, 8]
    assert counts[-1] in (49, 50)
    pace.adapt(50, 25.0)  # a step takes half a second now
    assert pace.steps == 1
