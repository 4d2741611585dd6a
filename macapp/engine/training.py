"""One training run, as a generator of events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macapp.engine import batches, datasets, devices, networks, optimizers
from macapp.engine.evaluation import evaluate
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError
from macapp.protocol import EpochDone, JobStarted, StepsDone, TrainingConfig

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from numpy.typing import NDArray

    from macapp.engine.datasets import Dataset
    from macapp.engine.devices import Device

MESSAGE_SECONDS = 0.1
"""Time between two messages, each of which costs one host read. The window redraws no faster."""


def assemble(config: TrainingConfig, resources: Path) -> tuple[nn.Module, Dataset, Device]:
    """Return what `train` needs: the network, its pictures, and where to train it.

    Raises:
        UserError: the configuration is wrong, or the device or the data cannot be used.
    """
    for problem in config.problems():
        change = Message(QT_TRANSLATE_NOOP("Message", "Change this setting, then start again."))
        raise UserError(Failure(problem.message, change, problem.field))
    device = devices.choose(config.device)
    dataset = datasets.load(config.dataset, resources)
    return networks.build(config.network, config.seed), dataset, device


def train(
    config: TrainingConfig, network: nn.Module, dataset: Dataset, device: Device, *, job: int = 0
) -> Generator[JobStarted | StepsDone | EpochDone, None, None]:
    """Train ``network`` in place; yield what happens, about every 0.1 s.

    Nothing is read from the device between two events, and at each of them its queue is empty:
    the caller may take its time there, which is not counted, or close the generator to stop.

    Raises:
        UserError: the loss is no longer a number.
    """
    network = device.place(network)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = optimizers.build(config, parameters, device)
    train_batches = batches.make(dataset.train, dataset, device)
    images = len(dataset.train)
    # Shuffles come from the CPU, so that every device sees the same batches.
    shuffle = torch.Generator().manual_seed(config.seed)

    steps_per_epoch = -(-images // config.batch_size)
    parameter_count = sum(parameter.numel() for parameter in parameters)
    yield JobStarted(job, device.kind, parameter_count, steps_per_epoch, config.epochs)

    step = 0
    pace = _Pace()
    for epoch in range(1, config.epochs + 1):
        network.train()
        loss_sum = 0.0
        unread: list[Tensor] = []  # losses still on the device
        order = torch.randperm(images, generator=shuffle)
        device.synchronize()
        watch = _Stopwatch()
        for batch, labels in train_batches.epoch(order, config.batch_size):
            optimizer.zero_grad(set_to_none=True)
            loss = F.nll_loss(network(batch), labels)
            loss.backward()
            optimizer.step()
            unread.append(loss.detach())
            step += 1

            is_last = step == epoch * steps_per_epoch
            if len(unread) == pace.steps or is_last:
                losses = _read(unread, device)  # waits for the device, so the clock may be read
                pace.adapt(len(unread), watch.stop())
                unread.clear()
                # Every batch is full but the last one of an epoch.
                missing = steps_per_epoch * config.batch_size - images if is_last else 0
                loss_sum += config.batch_size * float(losses.sum(dtype=np.float64))
                loss_sum -= missing * float(losses[-1])
                first = step - len(losses) + 1
                yield StepsDone(job, epoch, first, losses, watch.seconds)
                _check_finite(losses, first, config)
                watch.start()

        watch.stop()
        test_watch = _Stopwatch()
        score = evaluate(network, dataset, device)  # ends with a read, too
        test_watch.stop()
        yield EpochDone(
            job=job,
            epoch=epoch,
            step=step,
            seconds=watch.seconds,
            images_per_second=images / watch.seconds,
            train_loss=loss_sum / images,
            test_loss=score.loss,
            test_accuracy=score.accuracy,
            test_seconds=test_watch.seconds,
        )


def _read(losses: list[Tensor], device: Device) -> NDArray[np.float32]:
    """Return the losses as one array: the only host read of a message, and a CPU-GPU sync."""
    array: NDArray[np.float32] = device.read(torch.stack(losses)).numpy()
    return array


def _check_finite(losses: NDArray[np.float32], first_step: int, config: TrainingConfig) -> None:
    broken = np.flatnonzero(~np.isfinite(losses))
    if not len(broken):
        return
    what = QT_TRANSLATE_NOOP(
        "Message", "The loss is no longer a number since step {step}, so the run was stopped."
    )
    remedy = QT_TRANSLATE_NOOP(
        "Message",
        "Lower the learning rate, for example to {rate}, and start again. The epochs finished "
        "so far are kept.",
    )
    raise UserError(
        Failure(
            Message(what, {"step": first_step + int(broken[0])}),
            Message(remedy, {"rate": f"{config.learning_rate / 10:g}"}),
            f"losses from step {first_step}: {losses.tolist()}",
        )
    )


class _Pace:
    """How many steps make one message, so that messages come `MESSAGE_SECONDS` apart.

    A device that works through a queue tells its speed only when it is read, so the count
    follows the speed measured between reads, and at most doubles from one to the next.
    """

    def __init__(self) -> None:
        self.steps = 1

    def adapt(self, steps: int, seconds: float) -> None:
        fitting = int(steps * MESSAGE_SECONDS / max(seconds, 1e-9))
        self.steps = max(1, min(fitting, 2 * self.steps))


class _Stopwatch:
    """Adds up the time it runs. Whoever stops it has synchronized the device."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.start()

    def start(self) -> None:
        self._started: float | None = time.perf_counter()

    def stop(self) -> float:
        """Stop, and return the seconds since the last start; 0 if it stood still."""
        lap = 0.0 if self._started is None else time.perf_counter() - self._started
        self._started = None
        self.seconds += lap
        return lap
