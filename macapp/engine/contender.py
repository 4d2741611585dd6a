"""One contender of a comparison, in a process of its own: it trains blocks of steps when told.

A process each, so that a crash in Metal leaves the CPU's figures, and so that neither's threads
and caches are in the other's way. Requests come as lines of JSON on standard input, each is
answered by one line on standard output; when the input ends, so does the process.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import torch
from safetensors.torch import save_file

from macapp.engine import batches, datasets, devices, failures, networks, optimizers, training
from macapp.engine.evaluation import evaluate
from macapp.engine.fallbacks import FallbackRecorder
from macapp.engine.timing import Stopwatch
from macapp.messages import Failure
from macapp.protocol import DeviceKind, TrainingConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from macapp.engine.devices import Device

WARM_STEPS = 10
WARM_SECONDS = 1.0
"""A GPU raises its clocks, and compiles a kernel for each new shape, in the first steps
(pytorch#124056, #136003)."""
CHUNK_SECONDS = 0.2


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Load the pictures and take the device. The first request."""

    config: TrainingConfig
    device: DeviceKind
    threads: int
    """Of the CPU; 0: as many as PyTorch takes."""
    resources: str


class FirstSteps(msgspec.Struct, frozen=True, tag=True):
    """Train so many steps from the weights of the seed, and read every loss."""

    count: int
    update_path: str
    """Where the change of every parameter in the first step is written, as safetensors."""
    reorder: int = 0
    """Not 0: the seed by which the pictures of each batch change places, which changes nothing
    but the order in which sums are made."""


class WarmUp(msgspec.Struct, frozen=True, tag=True):
    """Begin anew with a batch size, and train until times settle; nothing of it is a result."""

    batch_size: int


class Block(msgspec.Struct, frozen=True, tag=True):
    """Train so many steps and time them together."""

    steps: int


class TestPass(msgspec.Struct, frozen=True, tag=True):
    """Time a pass over the test pictures."""


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The contender is ready."""

    threads: int
    """Of the CPU, as PyTorch has it."""
    pictures: int
    """For training, in an epoch."""
    parameters: int


class Trained(msgspec.Struct, frozen=True, tag=True):
    """The first steps are done."""

    losses: list[float]
    unmoved: list[str]
    """Names of the parameters that are what they were before."""
    first_step_seconds: float


class Warm(msgspec.Struct, frozen=True, tag=True):
    """Times have settled."""

    step_seconds: float
    """About so long takes a step."""


class Timed(msgspec.Struct, frozen=True, tag=True):
    """How long a block took. The parts make up the whole but for the reading of clocks."""

    seconds: float
    data_seconds: float = 0.0
    """Choosing and shuffling pictures."""
    transfer_seconds: float = 0.0
    """Copying them to the device."""
    step_seconds: float = 0.0
    """The CPU: computing. A GPU: handing work over."""
    waiting_seconds: float = 0.0
    """For a GPU to finish what it was handed."""
    slept: bool = False
    fallbacks: list[str] = []
    """Operators that the CPU computed in a GPU's place, up to now."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A request could not be done; the contender waits for the next."""

    failure: Failure
    is_out_of_memory: bool


Request: TypeAlias = Prepare | FirstSteps | WarmUp | Block | TestPass
Reply: TypeAlias = Prepared | Trained | Warm | Timed | Failed


class _Job:
    """What is trained, and where."""

    def __init__(self, prepare: Prepare) -> None:
        if prepare.threads:
            torch.set_num_threads(prepare.threads)
        self._config = prepare.config
        self._device = _timed(devices.DEVICES[prepare.device])
        self._dataset = datasets.load(prepare.config.dataset, Path(prepare.resources))
        self._batches = batches.make(self._dataset.train, self._dataset, self._device)
        self._fallbacks = FallbackRecorder()
        self._fallbacks.__enter__()  # until the process ends
        self._begin(prepare.config.batch_size)

    def _begin(self, batch_size: int) -> None:
        """Start from the weights and the order of pictures that the seed gives."""
        config = self._config
        network = networks.build(config.network, config.seed)
        self._start = {name: value.clone() for name, value in network.named_parameters()}
        self._network = self._device.place(network)
        parameters = [p for p in self._network.parameters() if p.requires_grad]
        self._optimizer = optimizers.build(config, parameters, self._device)
        self._stream = self._full_batches(batch_size)
        self._network.train()

    def _full_batches(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches without end, all of one size: another shape is another kernel."""
        shuffle = torch.Generator().manual_seed(self._config.seed)
        count = len(self._dataset.train)
        whole = max(1, count // batch_size) * batch_size

        def orders() -> Iterator[Tensor]:
            while True:
                yield torch.randperm(count, generator=shuffle)[:whole]

        return chain.from_iterable(self._batches.epoch(order, batch_size) for order in orders())

    @property
    def prepared(self) -> Prepared:
        parameters = sum(parameter.numel() for parameter in self._network.parameters())
        return Prepared(torch.get_num_threads(), len(self._dataset.train), parameters)

    def _step(self, images: Tensor, labels: Tensor) -> Tensor:
        return training.training_step(self._network, self._optimizer, images, labels)

    def first_steps(self, request: FirstSteps) -> Trained:
        self._begin(self._config.batch_size)
        places = torch.Generator().manual_seed(request.reorder)
        losses: list[Tensor] = []
        self._device.synchronize()
        watch = Stopwatch()
        for _ in range(request.count):
            images, labels = next(self._stream)
            if request.reorder:
                order = self._device.put(torch.randperm(len(labels), generator=places))
                images, labels = images.index_select(0, order), labels.index_select(0, order)
            losses.append(self._step(images, labels))
            if len(losses) == 1:
                self._device.synchronize()
                watch.stop()
                update = self._change()
                save_file(update, request.update_path)
        read = self._device.read(torch.stack(losses)).tolist()
        unmoved = [name for name, change in self._change().items() if not change.any()]
        return Trained(read, unmoved, watch.seconds)

    def _change(self) -> dict[str, Tensor]:
        """Return how far each parameter is from where it began, on the CPU."""
        return {
            name: self._device.read(parameter) - self._start[name]
            for name, parameter in self._network.named_parameters()
        }

    def warm_up(self, request: WarmUp) -> Warm:
        self._device.free_cache()
        self._begin(request.batch_size)
        steps, step_seconds = 1, 0.0
        started = time.perf_counter()
        done = 0
        while done < WARM_STEPS or time.perf_counter() - started < WARM_SECONDS:
            seconds = self.block(Block(steps)).seconds
            done += steps
            step_seconds = seconds / steps
            steps = max(1, min(2 * steps, int(CHUNK_SECONDS / max(step_seconds, 1e-9))))
        self._fallbacks.settle()  # every operator of a step has been met
        return Warm(step_seconds)

    def block(self, request: Block) -> Timed:
        clock, device = time.perf_counter, self._device
        data_seconds = step_seconds = 0.0
        device.synchronize()
        transferred = device.transfer_seconds
        watch = Stopwatch()
        begin = clock()
        for _ in range(request.steps):
            images, labels = next(self._stream)
            loaded = clock()
            self._step(images, labels)  # its loss stays unread
            data_seconds += loaded - begin
            begin = clock()
            step_seconds += begin - loaded
        device.synchronize()
        waiting_seconds = clock() - begin
        watch.stop()
        transfer_seconds = device.transfer_seconds - transferred
        return Timed(
            seconds=watch.seconds,
            data_seconds=max(0.0, data_seconds - transfer_seconds),
            transfer_seconds=transfer_seconds,
            step_seconds=step_seconds,
            waiting_seconds=waiting_seconds,
            slept=watch.slept,
            fallbacks=self._fallbacks.operators,
        )

    def test_pass(self) -> Timed:
        self._device.synchronize()
        watch = Stopwatch()
        for _ in evaluate(self._network, self._dataset, self._device):
            pass  # its last read waits for the device
        watch.stop()
        self._network.train()
        return Timed(watch.seconds, slept=watch.slept, fallbacks=self._fallbacks.operators)


class _TimedDevice(devices.Device):
    """A device that adds up how long it copies."""

    transfer_seconds: float


def _timed(kind: type[Device]) -> _TimedDevice:
    """Return a device of a class, with a clock at its door."""

    def put(self: _TimedDevice, tensor: Tensor) -> Tensor:
        begin = time.perf_counter()
        placed = kind.put(self, tensor)
        self.transfer_seconds += time.perf_counter() - begin
        return placed

    made: _TimedDevice = type(kind.__name__, (kind,), {"put": put, "transfer_seconds": 0.0})()
    return made


def _answer(job: _Job, request: Request) -> Reply:
    match request:
        case FirstSteps():
            return job.first_steps(request)
        case WarmUp():
            return job.warm_up(request)
        case Block():
            return job.block(request)
        case TestPass():
            return job.test_pass()
        case Prepare():
            raise ValueError("prepared twice")


def serve() -> int:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints there must not be taken for an answer
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            requests.put(line)
        os._exit(0)  # whoever asked is gone, even if Metal hangs at this moment

    threading.Thread(target=read, daemon=True, name="requests").start()
    decoder = msgspec.json.Decoder(Request)
    job: _Job | None = None
    while True:
        request = decoder.decode(requests.get())
        try:
            if job is None:
                assert isinstance(request, Prepare)
                job = _Job(request)
                reply: Reply = job.prepared
            else:
                reply = _answer(job, request)
        except Exception as error:
            reply = Failed(failures.describe(error), failures.is_out_of_memory(error))
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()
