"""A comparison of devices: what it is asked, what it says meanwhile, and the file of its result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from macapp.machine import Machine
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError
from macapp.protocol import DeviceKind, TrainingConfig, Versions

if TYPE_CHECKING:
    from pathlib import Path

METHOD_VERSION = 1
"""Of `macapp.engine.comparison`; counted up when figures could no longer be set side by side."""
MAX_BYTES = 20_000_000
"""A result has some 100 kB; what is far larger is something else."""

Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
SpeedVerdict: TypeAlias = Literal["faster", "slower", "no_difference"]
ParityVerdict: TypeAlias = Literal["same", "differs", "unknown"]


class Interval(msgspec.Struct, frozen=True):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class Spread(msgspec.Struct, frozen=True):
    """A median and the quartiles around it: half of all values lie between them."""

    median: float
    low: float
    high: float


class Contender(msgspec.Struct, frozen=True):
    """A device, and with how many threads of the CPU; 0: as many as PyTorch takes."""

    device: DeviceKind
    threads: int = 0

    @property
    def name(self) -> str:
        """As it is written on the command line: "cpu", "cpu:1", "mps"."""
        return f"{self.device}:{self.threads}" if self.threads else self.device


def parse_contender(text: str) -> Contender:
    """Read "cpu", "cpu:4", "mps" or "cuda".

    Raises:
        ValueError: it is none of these.
    """
    device, separator, threads = text.strip().partition(":")
    kinds: tuple[DeviceKind, ...] = ("mps", "cuda", "cpu")
    for kind in kinds:
        if device == kind and not separator:
            return Contender(kind)
        if device == kind and re.fullmatch(r"[1-9][0-9]{0,3}", threads):
            return Contender(kind, int(threads))
    raise ValueError(f"{text!r} is no contender: write cpu, cpu:4 (threads), mps or cuda")


class ComparisonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared, and for how long."""

    job: TrainingConfig
    """Its epochs and its device do not matter."""
    contenders: tuple[Contender, ...]
    """Two or more; the first one is the reference."""
    budget_seconds: float = 60.0
    """For all of it but the sweep."""
    block_seconds: float = 1.0
    """A block takes at least so long."""
    sweeps: bool = False
    """Whether other batch sizes are measured, too."""


Stage: TypeAlias = Literal["preparing", "checking", "measuring", "testing", "sweeping"]


class Measuring(msgspec.Struct, frozen=True):
    """What a comparison does at the moment; comes at least every half a second."""

    stage: Stage
    contender: str
    seconds: float
    """Since the comparison began."""


class BlockTimed(msgspec.Struct, frozen=True):
    """A contender has finished a block."""

    contender: str
    images_per_second: float


class ComparisonDone(msgspec.Struct, frozen=True):
    """The last event."""

    result: ComparisonResult


class Parts(msgspec.Struct, frozen=True):
    """Where the time of a training step went, in seconds a step: medians over the blocks."""

    data: Seconds
    """Choosing and shuffling pictures."""
    transfer: Seconds
    """Copying them to the device."""
    compute: Seconds
    """The CPU: computing. A GPU: being handed work."""
    waiting: Seconds
    """For a GPU to finish."""


class ContenderResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one contender."""

    name: str
    """As on the command line: "cpu", "cpu:1", "mps"."""
    device: DeviceKind
    threads: int
    """Of the CPU."""
    block_steps: int = 0
    """Training steps in each block."""
    block_seconds: list[Seconds] = []
    """Of each block, in the order of measurement; blocks of the same index were neighbours."""
    images_per_second: float = 0.0
    """Training loop; median."""
    epoch_seconds: Spread | None = None
    """Training loop of an epoch of whole batches; median and quartiles over the blocks."""
    whole_epoch_seconds: float | None = None
    """Median with the pass over the test pictures."""
    test_seconds: float | None = None
    first_step_seconds: float | None = None
    """With compilation, and with the first touch of memory."""
    parts: Parts | None = None
    losses: list[float] = []
    """Of the first steps, from the weights of the seed."""
    unmoved: list[str] = []
    """Parameters that the first steps left unchanged."""
    fallbacks: list[str] = []
    """Operators that the CPU computed in a GPU's place."""
    failure: Message | None = None
    """Why there is not more."""


class SpeedUp(msgspec.Struct, frozen=True):
    """How many times as fast a contender is as the first one, with a 95 % interval."""

    name: str
    reference: str
    value: float
    low: float
    high: float
    verdict: SpeedVerdict

    @property
    def interval(self) -> Interval:
        """The numbers alone."""
        return Interval(self.value, self.low, self.high)


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a contender computes what the first one computes."""

    name: str = ""
    reference: str = ""
    verdict: ParityVerdict = "unknown"
    largest_relative_difference: float | None = None
    """Of the losses of the same steps."""
    reordered_relative_difference: float | None = None
    """The same between runs of the reference that differ in the order of sums alone."""
    first_losses_difference: float | None = None
    """Relative, of the first two steps."""
    first_update_difference: float | None = None
    """Relative, of the parameter that was changed most differently by the first step."""
    mean_loss_difference: float | None = None
    """Relative, of the mean of all the losses."""
    reason: Message | None = None
    """What differs."""


class SweepPoint(msgspec.Struct, frozen=True):
    """Images per second of each contender with a batch size; None: it does not fit."""

    batch_size: int
    images_per_second: list[float | None]


class Note(msgspec.Struct, frozen=True):
    """Something that makes a comparison less fair than it should be."""

    kind: str
    message: Message


class ComparisonResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    method_version: int
    measured_at: str
    """Local time, as in ISO 8601."""
    machine: Machine
    versions: Versions
    job: TrainingConfig
    budget_seconds: float
    contenders: list[ContenderResult]
    speed_up: SpeedUp | None
    """Of the last contender; None if too little is known."""
    speed_ups: list[SpeedUp] = []
    """Of every contender but the first."""
    parity: Parity = Parity()
    """Of the last contender."""
    parities: list[Parity] = []
    sweep: list[SweepPoint] = []
    crossing_batch_size: float | None = None
    """From which on the last contender is the faster one up to the largest measured."""
    notes: list[Note] = []
    was_stopped: bool = False


def read(path: Path) -> ComparisonResult:
    """Read a result file.

    Raises:
        UserError: the file cannot be read, is no result, or is of a later method.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _not_a_result(path, "larger than any result")
        content = path.read_bytes()
    except OSError as error:
        what = QT_TRANSLATE_NOOP("Message", "{path} cannot be read.")
        remedy = QT_TRANSLATE_NOOP("Message", "Choose a file that is there and that you may read.")
        raise UserError(
            Failure(Message(what, {"path": str(path)}), Message(remedy), str(error))
        ) from error
    try:
        version = msgspec.json.decode(content, type=_Version).method_version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_a_result(path, str(error)) from error
    if version != METHOD_VERSION:
        what = QT_TRANSLATE_NOOP(
            "Message", "{path} was measured by method {version}; this program knows method {known}."
        )
        remedy = QT_TRANSLATE_NOOP(
            "Message", "Measure again, or open it with the Metal Trainer that wrote it."
        )
        values: dict[str, Any] = {"path": path.name, "version": version, "known": METHOD_VERSION}
        raise UserError(Failure(Message(what, values), Message(remedy)))
    try:
        return msgspec.json.decode(content, type=ComparisonResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_a_result(path, str(error)) from error


class _Version(msgspec.Struct):
    method_version: int


def _not_a_result(path: Path, details: str) -> UserError:
    what = QT_TRANSLATE_NOOP("Message", "{path} is not the result of a comparison, or is damaged.")
    remedy = QT_TRANSLATE_NOOP(
        "Message", "Choose a file that was saved by Compare, or ask for it once more."
    )
    return UserError(Failure(Message(what, {"path": path.name}), Message(remedy), details))


def encode(result: ComparisonResult) -> bytes:
    """Return the content of a result file."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1)
