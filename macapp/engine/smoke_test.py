"""Whether a GPU computes what the CPU computes, tried in a process of its own.

A broken Metal does not only raise: it aborts the process, hangs, or returns wrong numbers. So
the trial runs in a child, which tells each stage as it begins; how far it came is the result.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from macapp import faults
from macapp.messages import QT_TRANSLATE_NOOP, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from macapp.engine.devices import Device
    from macapp.protocol import DeviceKind

VERSION = 1
"""Counted up when the trial changes, so that remembered results of the old one are void."""
TIMEOUT_S = 20.0
LOADING_TIMEOUT_S = 120.0
"""PyTorch may take long to load from a slow disk; that says nothing about the GPU."""
# A wrong result is off by far more; float32 in another order of summation by far less. TF32, which
# CUDA uses for convolutions, is off by up to 0.1 %.
RELATIVE_TOLERANCE = 1e-2

# The stages, by the word the child prints for each.
STAGES = {
    "loading": QT_TRANSLATE_NOOP("Message", "loading PyTorch"),
    "memory": QT_TRANSLATE_NOOP("Message", "a first small task"),
    "training": QT_TRANSLATE_NOOP("Message", "one training step"),
    "assignment": QT_TRANSLATE_NOOP("Message", "writing into a part of a tensor"),
    "argmax": QT_TRANSLATE_NOOP("Message", "finding the largest number"),
}


class SmokeResult(msgspec.Struct, frozen=True):
    """How the trial went. ``outcome`` is one of the words below."""

    outcome: str
    """"passed", "wrong" (numbers), "error", "crash", "hang", or "not_run"."""
    stage: str = ""
    details: str = ""

    @property
    def passed(self) -> bool:
        """Whether the GPU can be trusted as far as this trial goes."""
        return self.outcome == "passed"

    def reason(self) -> Message:
        """Return in one sentence what happened; only for a trial that did not pass."""
        text = {
            "wrong": QT_TRANSLATE_NOOP("Message", "Metal computes wrong numbers: {stage} failed."),
            "error": QT_TRANSLATE_NOOP("Message", "Metal is there, but {stage} failed."),
            "crash": QT_TRANSLATE_NOOP("Message", "Metal is there, but {stage} made it crash."),
            "hang": QT_TRANSLATE_NOOP("Message", "Metal is there, but {stage} never ended."),
        }.get(self.outcome, QT_TRANSLATE_NOOP("Message", "Metal could not be tested."))
        return Message(text, {"stage": Message(STAGES.get(self.stage, self.stage))})


class WrongNumbersError(Exception):
    """A device computed something else than the CPU."""


# In the child ----------------------------------------------------------------------------------


def main(kind: DeviceKind) -> int:
    """Try the device and print how far it came; return the exit code."""
    _end_with_the_parent()
    print("loading", flush=True)
    from macapp.engine import devices

    try:
        for stage in stages(devices.DEVICES[kind]):
            print(stage, flush=True)
    except WrongNumbersError as error:
        print("wrong", str(error).replace("\n", " "), flush=True)
    except Exception as error:
        print("error", f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
    else:
        print("passed", flush=True)
    sys.stdout.flush()
    # WORKAROUND: pytorch/pytorch#188812, a crash in Metal's destructors at an ordinary end.
    os._exit(0)


def _end_with_the_parent() -> None:
    """End this process when the one that started it is gone: it holds our standard input."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def stages(make_device: Callable[[], Device]) -> Iterator[str]:
    """Try a device; yield the name of each stage before it begins.

    Raises:
        WrongNumbersError: the device computed something else than the CPU.
        Exception: whatever the device raises.
    """
    import torch

    yield "memory"
    device = make_device()
    _compare("2 x 1", device.read(device.put(torch.ones(2)) * 2), torch.full((2,), 2.0))

    yield "training"
    found, expected = _training_step(device), _training_step(None)
    for name, tensor in expected.items():
        _compare(name, found[name], tensor)

    yield "assignment"
    # Up to torch 2.2 on macOS 14.4 the second number lands where the first one did, and one that
    # is chosen by a mask elsewhere (pytorch#122016, #126919).
    numbers = device.put(torch.zeros(3))
    numbers[1] = 1
    numbers[2] = 3
    _compare("x[1] = 1; x[2] = 3", device.read(numbers), torch.tensor([0.0, 1.0, 3.0]))
    numbers[numbers == 1] = -1
    _compare("x[x == 1] = -1", device.read(numbers), torch.tensor([0.0, -1.0, 3.0]))

    yield "argmax"
    # It gave -9223372036854775808 on some, 0 on others (pytorch#92311, #112186).
    table = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]])
    largest = device.read(device.put(table).argmax(1))
    _compare("argmax", largest.float(), table.argmax(1).float())


def _training_step(device: Device | None) -> dict[str, Tensor]:
    """Return what one step of a small network computes: loss, gradients, new weights.

    On the CPU if ``device`` is None; from the same numbers every time.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    def ramp(*shape: int) -> Tensor:
        count = torch.Size(shape).numel()
        return torch.sin(torch.arange(count, dtype=torch.float32) * 0.7).reshape(shape) * 0.5

    network: nn.Module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(ramp(*parameter.shape))
    images, labels = ramp(8, 1, 8, 8), torch.arange(8) % 3
    if device is not None:
        network, images, labels = device.place(network), device.put(images), device.put(labels)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.5)
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    results = {"loss": loss}
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        results["gradient of " + name] = parameter.grad
        results["new " + name] = parameter
    read = torch.Tensor.cpu if device is None else device.read
    return {name: read(tensor.detach()) for name, tensor in results.items()}


def _compare(name: str, found: Tensor, expected: Tensor) -> None:
    import torch

    scale = float(expected.abs().max()) or 1.0
    if not torch.allclose(found, expected, rtol=0.0, atol=RELATIVE_TOLERANCE * scale):
        raise WrongNumbersError(f"{name}: {found.tolist()} instead of {expected.tolist()}")


# In the parent ---------------------------------------------------------------------------------


def command(kind: DeviceKind) -> list[str]:
    """Return the command line of the child; from a terminal it does the same for a person."""
    program = (
        [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "macapp"]
    )
    return [*program, "smoke-test", "--device", kind]


def run(
    arguments: list[str],
    *,
    timeout_s: float = TIMEOUT_S,
    loading_timeout_s: float = LOADING_TIMEOUT_S,
) -> SmokeResult:
    """Run the child, for at most ``timeout_s`` a stage; never raises."""
    with tempfile.TemporaryFile() as stderr:
        try:
            child = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        except OSError as error:
            return SmokeResult("not_run", details=str(error))
        with child:
            lines, in_time = _listen(child, timeout_s, loading_timeout_s)
            child.kill()
            exit_code = child.wait()
        stderr.seek(0)
        printed = stderr.read()[-8000:].decode(errors="replace")
    return _judge(lines, in_time, exit_code, printed)


def _listen(
    child: subprocess.Popen[bytes], timeout_s: float, loading_timeout_s: float
) -> tuple[list[str], bool]:
    """Return the lines that the child printed, and whether it ended in time."""
    assert child.stdout is not None
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + loading_timeout_s
        while selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(child.stdout.fileno(), 65536)
            if not data:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout_s)  # so that its own exit code is seen, not our kill
                return text.decode(errors="replace").splitlines(), True
            text += data
            if text.count(b"\n") > 1:  # PyTorch is loaded
                deadline = time.monotonic() + timeout_s
    return text.decode(errors="replace").splitlines(), False


def _judge(lines: list[str], in_time: bool, exit_code: int, printed: str) -> SmokeResult:
    words = [line.partition(" ") for line in lines]
    stage = next((word for word, _, _ in reversed(words) if word in STAGES), "loading")
    said = {word: rest for word, _, rest in words}
    line = faults.garbage(printed)
    if "passed" in said and not line:
        return SmokeResult("passed")
    for outcome in ("wrong", "error"):
        if outcome in said:
            return SmokeResult(outcome, stage, f"{said[outcome]}\n{printed}".strip())
    if "passed" in said:
        return SmokeResult("wrong", stage, printed)
    if not in_time:
        return SmokeResult("hang", stage, printed)
    ended = faults.signal_name(exit_code) or f"exit code {exit_code}"
    return SmokeResult("crash", stage, f"{ended}\n{printed}".strip())


class Memory:
    """Results of trials, remembered by what they depend on: computer, system, PyTorch."""

    def __init__(self, folder: Path | None) -> None:
        """Keep them in ``folder``, or nowhere."""
        self._path = folder / "smoke-test.json" if folder is not None else None

    def recall(self, key: str) -> SmokeResult | None:
        """Return the result of an earlier trial, or None; a damaged file is none."""
        if self._path is None:
            return None
        try:
            known = msgspec.json.decode(self._path.read_bytes(), type=dict[str, SmokeResult])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return known.get(key)

    def keep(self, key: str, result: SmokeResult) -> None:
        """Remember a result instead of all others; a folder that cannot be written forgets it."""
        if self._path is None:
            return
        partial = self._path.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode({key: result}))
            partial.replace(self._path)
