"""One training run, as a generator of events."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macapp.engine import batches, checkpoint, datasets, failures, networks, optimizers
from macapp.engine.checks import MovementCheck, check_finite, check_parity
from macapp.engine.evaluation import TEST_BATCH_SIZE, Score, evaluate
from macapp.engine.memory import Growth
from macapp.engine.timing import Pace, Stopwatch
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError
from macapp.protocol import (
    BatchHalved,
    CheckpointSaved,
    EpochDone,
    JobStarted,
    Progress,
    RunNotice,
    StepsDone,
    StillTesting,
    TrainingConfig,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from numpy.typing import NDArray
    from torch.optim import Optimizer

    from macapp.engine.checkpoint import State
    from macapp.engine.datasets import Dataset
    from macapp.engine.devices import Device
    from macapp.engine.diagnosis import DeviceSurvey

MESSAGE_SECONDS = 0.1
"""Time between two messages, each of which costs one host read. The window redraws no faster."""


def assemble(
    config: TrainingConfig, resources: Path, survey: DeviceSurvey
) -> tuple[nn.Module, Dataset, Device]:
    """Return what `train` needs: the network, its pictures, and where to train it.

    Raises:
        UserError: the configuration is wrong, or the device or the data cannot be used.
    """
    for problem in config.problems():
        change = Message(QT_TRANSLATE_NOOP("Message", "Change this setting, then start again."))
        raise UserError(Failure(problem.message, change, problem.field))
    device = survey.choose(config.device)
    dataset = datasets.load(config.dataset, resources)
    return networks.build(config.network, config.seed), dataset, device


def train(
    config: TrainingConfig,
    network: nn.Module,
    dataset: Dataset,
    device: Device,
    *,
    job: int = 0,
    start: State | None = None,
    checkpoint_path: Path | None = None,
) -> Generator[Progress, None, None]:
    """Train ``network`` in place; yield what happens, about every 0.1 s.

    Nothing is read from the device between two events, and at each of them its queue is empty:
    the caller may take its time there, which is not counted, or close the generator to stop.

    Args:
        config: what to do.
        network: what to train; on the CPU.
        dataset: its pictures.
        device: where to train.
        job: the number that every event carries.
        start: the state to go on from, instead of the network's own weights and epoch 1.
        checkpoint_path: where to write the state at the end of each epoch; None writes none.

    Raises:
        UserError: the loss is no longer a number, or memory does not suffice for one picture, or
            the device computes wrong numbers.
    """
    run = _Run(config, network, dataset, device, job)
    if start is not None:
        run.restore(start)
    yield run.started()
    run.check_first_batch()
    growth = Growth(job)
    while run.epoch < config.epochs:
        # The last good state: what an epoch that runs out of memory goes back to.
        state = run.state()
        if checkpoint_path is not None and run.epoch > (start.epoch if start else 0):
            yield run.save(state, checkpoint_path)
        try:
            yield from run.train_epoch()
        except (RuntimeError, MemoryError) as error:
            if not failures.is_out_of_memory(error):
                raise
            if run.batch_size == 1:
                raise _no_memory_for_one(error) from error
        else:
            notice = growth.after_epoch(run.epoch, device)
            if notice is not None:
                yield notice
            continue
        # Here, and not in the handler: the exception would hold on to the step's tensors.
        yield from run.halve_batch(state)


def _no_memory_for_one(error: Exception) -> UserError:
    what = QT_TRANSLATE_NOOP("Message", "There is not enough memory even for a batch of 1.")
    remedy = QT_TRANSLATE_NOOP(
        "Message",
        "Close other apps, or choose a smaller network, or train on the CPU. The epochs finished "
        "so far are kept.",
    )
    details = failures.describe(error).details
    return UserError(Failure(Message(what), Message(remedy), details, "memory", True))


def training_step(
    network: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor
) -> Tensor:
    """Take one training step and return its loss, still on the device."""
    optimizer.zero_grad(set_to_none=True)
    loss = F.nll_loss(network(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


class _Run:
    """A run in progress: what is trained, and how far it has come."""

    def __init__(
        self,
        config: TrainingConfig,
        network: nn.Module,
        dataset: Dataset,
        device: Device,
        job: int,
    ) -> None:
        self._config, self._dataset, self._device, self._job = config, dataset, device, job
        # For the comparison with the CPU; there it would compare the CPU with itself.
        self._reference = copy.deepcopy(network) if device.kind != "cpu" else None
        self._network = device.place(network)
        self._parameters = [p for p in self._network.parameters() if p.requires_grad]
        self._optimizer = optimizers.build(config, self._parameters, device)
        self._batches = batches.make(dataset.train, dataset, device)
        # Shuffles come from the CPU, so that every device sees the same batches.
        self._shuffle = torch.Generator().manual_seed(config.seed)
        self._pace = Pace(MESSAGE_SECONDS)
        self._movement: MovementCheck | None = None
        self.batch_size = config.batch_size
        self.epoch = 0  # the last one that is complete
        self.step = 0

    # How it stands --------------------------------------------------------------------------------

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self._dataset.train) // self.batch_size)

    def started(self) -> JobStarted:
        return JobStarted(
            self._job,
            self._device.kind,
            sum(parameter.numel() for parameter in self._parameters),
            self.steps_per_epoch,
            self._config.epochs,
            self.epoch + 1,
            self.step + 1,
        )

    def state(self) -> State:
        return checkpoint.take(
            self._network,
            self._optimizer,
            self._shuffle,
            self._device,
            epoch=self.epoch,
            step=self.step,
            batch_size=self.batch_size,
        )

    def restore(self, state: State) -> None:
        checkpoint.restore(state, self._network, self._optimizer, self._shuffle)
        if self._reference is not None:
            self._reference.load_state_dict(state.network)
        self.epoch, self.step, self.batch_size = state.epoch, state.step, state.batch_size

    def save(self, state: State, path: Path) -> CheckpointSaved | RunNotice:
        try:
            checkpoint.save(state, path)
        except OSError:
            text = QT_TRANSLATE_NOOP(
                "Message",
                "The state after epoch {epoch} could not be saved, since the disk is full or "
                "cannot be written. Training goes on; after a crash it would begin anew.",
            )
            return RunNotice(self._job, "checkpoint", Message(text, {"epoch": state.epoch}))
        return CheckpointSaved(self._job, state.epoch, str(path))

    # What it does ---------------------------------------------------------------------------------

    def check_first_batch(self) -> None:
        """Compare the device with the CPU on the first pictures, before anything is trained."""
        if self._reference is None:
            return
        order = torch.arange(min(self.batch_size, len(self._dataset.train)))
        batch = next(iter(self._batches.epoch(order, len(order))))
        check_parity(self._reference, self._network, batch, self._device)
        self._reference = None
        self._movement = MovementCheck(self._parameters)

    def train_epoch(self) -> Generator[Progress, None, None]:
        config, device, job = self._config, self._device, self._job
        images, batch_size, epoch = len(self._dataset.train), self.batch_size, self.epoch + 1
        last_step = self.step + self.steps_per_epoch
        self._network.train()
        loss_sum = 0.0
        unread: list[Tensor] = []  # losses still on the device
        order = torch.randperm(images, generator=self._shuffle)
        device.synchronize()
        watch = Stopwatch()
        for batch, labels in self._batches.epoch(order, batch_size):
            unread.append(training_step(self._network, self._optimizer, batch, labels))
            self.step += 1
            if self._movement is not None:
                self._movement.check(config, device)
                self._movement = None

            is_last = self.step == last_step
            if len(unread) == self._pace.steps or is_last:
                losses = _read(unread, device)  # waits for the device, so the clock may be read
                self._pace.adapt(len(unread), watch.stop())
                unread.clear()
                # Every batch is full but the last one of an epoch.
                missing = self.steps_per_epoch * batch_size - images if is_last else 0
                loss_sum += batch_size * float(losses.sum(dtype=np.float64))
                loss_sum -= missing * float(losses[-1])
                first = self.step - len(losses) + 1
                yield StepsDone(job, epoch, first, losses, watch.seconds, device.memory())
                check_finite(losses, first, config)
                watch.start()

        watch.stop()
        test_watch = Stopwatch()
        score = yield from self._test(test_watch)
        test_watch.stop()
        self.epoch = epoch
        yield EpochDone(
            job=job,
            epoch=epoch,
            step=self.step,
            seconds=watch.seconds,
            images_per_second=images / watch.seconds,
            train_loss=loss_sum / images,
            test_loss=score.loss,
            test_accuracy=score.accuracy,
            test_seconds=test_watch.seconds,
            slept=watch.slept,
        )
        if watch.slept:
            yield self._slept(epoch)

    def _test(self, watch: Stopwatch) -> Generator[Progress, None, Score]:
        """Test, with smaller batches if memory runs out: that changes no result."""
        batch_size = TEST_BATCH_SIZE
        while True:
            try:
                for score in evaluate(self._network, self._dataset, self._device, batch_size):
                    if score is not None:  # with its read the device is synchronized
                        return score
                    watch.stop()
                    yield StillTesting(self._job)
                    watch.start()
            except (RuntimeError, MemoryError) as error:
                if batch_size == 1 or not failures.is_out_of_memory(error):
                    raise
            batch_size //= 2
            self._device.free_cache()

    def halve_batch(self, state: State) -> Generator[Progress, None, None]:
        """Go back to the last good state, with half the batch, when memory ran out."""
        self._optimizer.zero_grad(set_to_none=True)
        self._device.free_cache()
        self.restore(state)
        before, self.batch_size = self.batch_size, self.batch_size // 2
        epoch = self.epoch + 1
        yield BatchHalved(self._job, epoch, self.step, self.batch_size, self.steps_per_epoch)
        text = QT_TRANSLATE_NOOP(
            "Message",
            "Memory ran out with a batch of {before}, so epoch {epoch} began anew with {now} "
            "pictures a step. The learning rate is unchanged.",
        )
        values = {"before": before, "epoch": epoch, "now": self.batch_size}
        yield RunNotice(self._job, "batch", Message(text, dict(values)), "memory")

    def _slept(self, epoch: int) -> RunNotice:
        text = QT_TRANSLATE_NOOP(
            "Message",
            "The computer slept during epoch {epoch}: its time is marked and not worth comparing.",
        )
        return RunNotice(self._job, "sleep", Message(text, {"epoch": epoch}))


def _read(losses: list[Tensor], device: Device) -> NDArray[np.float32]:
    """Return the losses as one array: the only host read of a message, and a CPU-GPU sync."""
    array: NDArray[np.float32] = device.read(torch.stack(losses)).numpy()
    return array
