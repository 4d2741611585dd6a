"""What crosses between the window and the engine: configurations, commands, events.

Everything here is a small frozen struct of plain numbers, strings and numpy arrays: never a
tensor, never a live object. The limits of a hyperparameter are written once, on its field; the
form, the command line and the checks read them there (`fields`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, Topic

DeviceKind: TypeAlias = Literal["cpu", "mps", "cuda"]
Number: TypeAlias = "int | float"

# Configurations -------------------------------------------------------------------------------


class TrainingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training run. The defaults are the preset "Article"."""

    dataset: Annotated[
        Literal["mnist"],
        Meta(
            title=QT_TRANSLATE_NOOP("Message", "Dataset"),
            description=QT_TRANSLATE_NOOP(
                "Message", "The pictures to learn from. MNIST: 70,000 handwritten digits."
            ),
        ),
    ] = "mnist"
    network: Annotated[
        Literal["article"],
        Meta(
            title=QT_TRANSLATE_NOOP("Message", "Network"),
            description=QT_TRANSLATE_NOOP(
                "Message", "The network to train: two convolutions, then two linear layers."
            ),
        ),
    ] = "article"
    device: Annotated[
        Literal["auto", "mps", "cuda", "cpu"],
        Meta(
            title=QT_TRANSLATE_NOOP("Message", "Device"),
            description=QT_TRANSLATE_NOOP(
                "Message",
                "What does the computing. Automatic takes Metal, else CUDA, else the CPU.",
            ),
        ),
    ] = "auto"
    epochs: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title=QT_TRANSLATE_NOOP("Message", "Epochs"),
            description=QT_TRANSLATE_NOOP(
                "Message", "How many times the network sees every training picture."
            ),
            extra={"unit": QT_TRANSLATE_NOOP("Message", "passes"), "step": 1},
        ),
    ] = 5
    batch_size: Annotated[
        int,
        Meta(
            ge=1,
            # Linear layers on MPS gave wrong gradients above 32,768 rows (pytorch#177116).
            le=8192,
            title=QT_TRANSLATE_NOOP("Message", "Batch size"),
            description=QT_TRANSLATE_NOOP(
                "Message",
                "Pictures per step. Larger is faster on a GPU, but takes fewer steps an epoch.",
            ),
            extra={"unit": QT_TRANSLATE_NOOP("Message", "pictures"), "factor": 2},
        ),
    ] = 64
    optimizer: Annotated[
        Literal["sgd", "adam", "adamw"],
        Meta(
            title=QT_TRANSLATE_NOOP("Message", "Optimizer"),
            description=QT_TRANSLATE_NOOP(
                "Message",
                "The rule that turns gradients into new weights. Adam and AdamW adapt the step "
                "of each weight; they want a learning rate near 0.001.",
            ),
        ),
    ] = "sgd"
    learning_rate: Annotated[
        float,
        Meta(
            ge=1e-6,
            le=10.0,
            title=QT_TRANSLATE_NOOP("Message", "Learning rate"),
            description=QT_TRANSLATE_NOOP(
                "Message",
                "The size of each step. Too small learns slowly, too large does not learn at all.",
            ),
            extra={"unit": QT_TRANSLATE_NOOP("Message", "per step"), "factor": 2},
        ),
    ] = 0.01
    momentum: Annotated[
        float,
        Meta(
            ge=0.0,
            le=0.999,
            title=QT_TRANSLATE_NOOP("Message", "Momentum"),
            description=QT_TRANSLATE_NOOP(
                "Message", "The share of the last step that is kept in the next. Only for SGD."
            ),
            extra={"unit": QT_TRANSLATE_NOOP("Message", "share"), "step": 0.05},
        ),
    ] = 0.5
    weight_decay: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1.0,
            title=QT_TRANSLATE_NOOP("Message", "Weight decay"),
            description=QT_TRANSLATE_NOOP(
                "Message", "How strongly weights are pulled towards zero. 0 switches it off."
            ),
            extra={"unit": QT_TRANSLATE_NOOP("Message", "per step"), "step": 0.0001},
        ),
    ] = 0.0
    seed: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31 - 1,
            title=QT_TRANSLATE_NOOP("Message", "Seed"),
            description=QT_TRANSLATE_NOOP(
                "Message",
                "Where the random numbers start. The same seed on the CPU gives the same run.",
            ),
            extra={"unit": QT_TRANSLATE_NOOP("Message", "number"), "step": 1},
        ),
    ] = 1

    def problems(self) -> list[Problem]:
        """Return what is wrong with each field, in the order of the fields; empty if all is well.

        msgspec checks limits only when it decodes; a struct built in Python is checked here.
        """
        found = ((field.name, field.check(getattr(self, field.name))) for field in fields())
        return [Problem(name, message) for name, message in found if message is not None]


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with one field of a configuration."""

    field: str
    message: Message


# "Faster" ends at 97.8 to 98.6 % (median 98.3 %, 20 seeds) after 2 epochs. Four times its learning
# rate falls below 97 % with some seed: `python -m tests.benchmarks.presets --seeds 20`.
PRESETS: dict[str, TrainingConfig] = {
    "article": TrainingConfig(),
    "faster": TrainingConfig(epochs=2, batch_size=256, learning_rate=0.025, momentum=0.9),
}


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One hyperparameter as the form, the command line and the checks see it."""

    name: str
    title: Message
    help: Message
    unit: Message | None
    """What one of it is, for example "pictures"; None for a choice."""
    kind: Literal["choice", "integer", "real"]
    choices: tuple[str, ...] = ()
    minimum: Number = 0
    maximum: Number = 0
    step: Number | None = None
    """What one press of an arrow adds."""
    factor: Number | None = None
    """What one press of an arrow multiplies by; exactly one of step and factor is set."""
    default: str | int | float

    def check(self, value: object) -> Message | None:
        """Return what is wrong with ``value``, or None."""
        if self.kind == "choice":
            if value in self.choices:
                return None
            return Message(
                QT_TRANSLATE_NOOP("Message", "{title} must be one of: {choices}."),
                {"title": self.title, "choices": ", ".join(self.choices)},
            )
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if self.kind == "integer" and not isinstance(value, int):
            is_number = False
        if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
            return self._not_a_number()
        if self.minimum <= value <= self.maximum:  # type: ignore[operator]
            return None
        return Message(
            QT_TRANSLATE_NOOP("Message", "{title} must be between {minimum} and {maximum}."),
            {
                "title": self.title,
                "minimum": format_number(self.minimum),
                "maximum": format_number(self.maximum),
            },
        )

    def parse(self, text: str) -> str | int | float:
        """Return the value that ``text`` stands for; a decimal comma is understood.

        Raises:
            FieldError: the text is no value of this field, or lies outside its limits.
        """
        value: object = text.strip()
        if self.kind != "choice":
            number = str(value).replace("\N{MINUS SIGN}", "-")
            if "," in number and "." not in number:
                number = number.replace(",", ".", 1)
            try:
                value = int(number) if self.kind == "integer" else float(number)
            except ValueError:
                raise FieldError(self._not_a_number()) from None
        problem = self.check(value)
        if problem is not None:
            raise FieldError(problem)
        return value  # type: ignore[return-value]

    def stepped(self, value: Number, count: int) -> Number:
        """Return ``value`` after ``count`` presses of an arrow, kept within the limits."""
        if self.factor is not None:
            value = value * self.factor**count
        else:
            value = value + (self.step or 1) * count
        value = min(max(value, self.minimum), self.maximum)
        # Ten significant digits: 0.1 + 0.05 is then shown as 0.15.
        return int(value) if self.kind == "integer" else float(f"{value:.10g}")

    def _not_a_number(self) -> Message:
        if self.kind == "integer":
            text = QT_TRANSLATE_NOOP("Message", "{title} must be a whole number.")
        else:
            text = QT_TRANSLATE_NOOP("Message", "{title} must be a number.")
        return Message(text, {"title": self.title})


class FieldError(ValueError):
    """A text that is no value of its field; ``message`` says why."""

    def __init__(self, message: Message) -> None:
        """Keep the message; it is the exception's text, too."""
        super().__init__(str(message))
        self.message = message


@cache
def fields() -> tuple[FieldInfo, ...]:
    """Return the fields of `TrainingConfig`, read from its annotations, in their order."""
    info = msgspec.inspect.type_info(TrainingConfig)
    assert isinstance(info, msgspec.inspect.StructType)
    return tuple(_field_info(field) for field in info.fields)


def _field_info(field: msgspec.inspect.Field) -> FieldInfo:
    annotated = field.type
    assert isinstance(annotated, msgspec.inspect.Metadata)
    schema = annotated.extra_json_schema or {}
    extra: dict[str, Any] = annotated.extra or {}
    inner: Any = annotated.type
    common: dict[str, Any] = {
        "name": field.encode_name,
        "title": Message(schema["title"]),
        "help": Message(schema["description"]),
        "default": field.default,
    }
    if isinstance(inner, msgspec.inspect.LiteralType):
        return FieldInfo(unit=None, kind="choice", choices=_literal_order(field.name), **common)
    return FieldInfo(
        unit=Message(extra["unit"]),
        kind="integer" if isinstance(inner, msgspec.inspect.IntType) else "real",
        minimum=inner.ge,
        maximum=inner.le,
        step=extra.get("step"),
        factor=extra.get("factor"),
        **common,
    )


def _literal_order(name: str) -> tuple[str, ...]:
    """Return the choices of a field as written: msgspec sorts them, the form should not."""
    return tuple(get_type_hints(TrainingConfig)[name].__args__)


def format_number(value: Number) -> str:
    """Return ``value`` as a person would write it: no exponent from 0.000001 to 10 digits."""
    if isinstance(value, int):
        return str(value)
    text = f"{value:.10f}".rstrip("0").rstrip(".")
    return text if text not in ("", "0") or value == 0 else f"{value:g}"


# Commands: window to engine --------------------------------------------------------------------


class Folders(msgspec.Struct, frozen=True):
    """What the engine is told at its start: it looks for no folder by itself."""

    resources: str
    """Holds the data files; only read."""
    cache: str = ""
    """For the result of the smoke test; "" keeps none."""
    checkpoints: str = ""
    """For the state at the end of the last epoch; "" keeps none."""


class StartTraining(msgspec.Struct, frozen=True):
    """Train as configured. Jobs wait for each other; one runs at a time."""

    job: int
    config: TrainingConfig
    checkpoint: str = ""
    """Go on from this file, which a `CheckpointSaved` named; "" begins anew."""


class Pause(msgspec.Struct, frozen=True):
    """Hold the job between two steps, until `Resume`."""

    job: int


class Resume(msgspec.Struct, frozen=True):
    """Go on with a paused job."""

    job: int


class Stop(msgspec.Struct, frozen=True):
    """End the job between two steps; what it learned stays in the engine."""

    job: int


class SaveWeights(msgspec.Struct, frozen=True):
    """Write the weights of the network trained last, as safetensors."""

    path: str


class Inspect(msgspec.Struct, frozen=True):
    """Say what a run would need, without training; `Inspection` answers."""

    config: TrainingConfig


class CheckDevices(msgspec.Struct, frozen=True):
    """Test the GPU again, whatever is remembered of it; `DevicesFound` answers."""


class Quit(msgspec.Struct, frozen=True):
    """End the engine after the step in progress."""


Request: TypeAlias = SaveWeights | Inspect | CheckDevices
"""A command that is answered between two steps of a job, or at once when none runs."""
Command: TypeAlias = StartTraining | Pause | Resume | Stop | Request | Quit

# Events: engine to window ----------------------------------------------------------------------


Verdict: TypeAlias = Literal[
    "ready",
    "checking",
    "not_here",
    "not_built",
    "macos_too_old",
    "intel",
    "rosetta",
    "virtual_machine",
    "no_access",
    "failed",
]


class DeviceStatus(msgspec.Struct, frozen=True):
    """Whether a device can train here, and why (not)."""

    kind: DeviceKind
    verdict: Verdict
    reason: Message
    remedy: Message | None = None
    """What the user can do about it; None when there is nothing to do."""
    details: str = ""
    """For *Copy diagnostics*: the facts behind the verdict, what PyTorch said."""

    @property
    def ready(self) -> bool:
        """Whether it can be trained on."""
        return self.verdict == "ready"


class Versions(msgspec.Struct, frozen=True):
    """The versions that a result depends on; "" where one is unknown."""

    metal_trainer: str
    python: str
    torch: str
    torchvision: str
    numpy: str


class EngineReady(msgspec.Struct, frozen=True):
    """PyTorch is loaded; jobs can run."""

    versions: Versions
    devices: tuple[DeviceStatus, ...]
    """One of them may still be "checking": `DevicesFound` follows."""


class DevicesFound(msgspec.Struct, frozen=True):
    """The devices were tested; their states replace those known before."""

    devices: tuple[DeviceStatus, ...]


class Inspection(msgspec.Struct, frozen=True):
    """The answer to `Inspect`: what a run as configured would meet."""

    config: TrainingConfig
    device: DeviceKind
    on_cpu: tuple[str, ...]
    """The operators of a training step that ``device`` lacks, so that the CPU computes them."""
    is_complete: bool
    """False if PyTorch's list of operators is not there, so that ``on_cpu`` says nothing."""
    needed_bytes: int
    """An estimate for the network, its optimizer and one batch."""
    free_bytes: int
    fitting_batch_size: int
    """The largest power-of-two part of the batch that fits; 0 if not even one picture does."""


class JobStarted(msgspec.Struct, frozen=True):
    """A job begins to train, on ``device``."""

    job: int
    device: DeviceKind
    parameters: int
    """How many trainable numbers the network has."""
    steps_per_epoch: int
    epochs: int
    first_epoch: int = 1
    """More than 1 when a run is continued."""
    first_step: int = 1


class DeviceMemory(msgspec.Struct, frozen=True):
    """Memory that the engine holds on its GPU, in bytes, between two steps."""

    allocated: int
    """In tensors."""
    reserved: int
    """From the driver: tensors, freed memory kept for the next ones, compiled programs."""


class StepsDone(msgspec.Struct, frozen=True, eq=False):
    """Some steps were trained since the last such event."""

    job: int
    epoch: int
    """Counted from 1."""
    first_step: int
    """The step of the run that ``losses[0]`` belongs to, counted from 1 over all epochs."""
    losses: NDArray[np.float32]
    """One training loss a step, shape (steps,)."""
    epoch_seconds: float
    """Time trained in this epoch so far, pauses left out."""
    memory: DeviceMemory | None = None
    """None on the CPU, or when the device does not say."""


class StillTesting(msgspec.Struct, frozen=True):
    """The test pass after an epoch goes on; sent about once a second."""

    job: int


class BatchHalved(msgspec.Struct, frozen=True):
    """Memory ran out: the epoch begins anew, from its first weights, with half the batch."""

    job: int
    epoch: int
    """Counted from 1."""
    step: int
    """The last step that still counts; what was sent of later ones is void."""
    batch_size: int
    """The new one."""
    steps_per_epoch: int


class RunNotice(msgspec.Struct, frozen=True):
    """Something about a run that its owner should know; training goes on.

    A later notice of the same kind replaces the earlier one.
    """

    job: int
    kind: Literal["fallback", "garbage", "batch", "sleep", "growth", "checkpoint"]
    message: Message
    topic: Topic = ""


class EpochDone(msgspec.Struct, frozen=True):
    """An epoch and its test pass are complete."""

    job: int
    epoch: int
    """Counted from 1."""
    step: int
    """The last step of the epoch, counted from 1 over all epochs."""
    seconds: float
    """Time of the training steps: device synchronized on both sides, pauses and test left out."""
    images_per_second: float
    train_loss: float
    """Mean over the pictures, while the weights were changing."""
    test_loss: float
    test_accuracy: float
    """Share of the test pictures classified correctly, 0 to 1."""
    test_seconds: float
    slept: bool = False
    """Whether the computer slept meanwhile, so that ``seconds`` is not worth comparing."""


class CheckpointSaved(msgspec.Struct, frozen=True):
    """The state at the end of an epoch is on disk: `StartTraining` can go on from it."""

    job: int
    epoch: int
    path: str


class JobPaused(msgspec.Struct, frozen=True):
    """The job holds between two steps."""

    job: int


class JobResumed(msgspec.Struct, frozen=True):
    """The job goes on."""

    job: int


class JobEnded(msgspec.Struct, frozen=True):
    """The job is over and nothing went wrong."""

    job: int
    outcome: Literal["finished", "stopped", "forced", "cancelled"]
    """Stopped between two steps; by force, so that its network is lost; or before it began."""


class JobFailed(msgspec.Struct, frozen=True):
    """The job is over because something went wrong; its finished epochs stay valid."""

    job: int
    failure: Failure


class WeightsSaved(msgspec.Struct, frozen=True):
    """The answer to `SaveWeights`; ``failure`` is None when the file is complete."""

    path: str
    failure: Failure | None


Progress: TypeAlias = (
    JobStarted | StepsDone | StillTesting | EpochDone | CheckpointSaved | BatchHalved | RunNotice
)
"""What a run says while it goes on."""
Event: TypeAlias = (
    EngineReady
    | DevicesFound
    | Inspection
    | Progress
    | JobPaused
    | JobResumed
    | JobEnded
    | JobFailed
    | WeightsSaved
)
