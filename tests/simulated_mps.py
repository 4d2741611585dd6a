"""An engine process whose Metal is a stand-in: it computes on the CPU, and fails as Metal does.

``engine(case)`` is the ``main`` of a real engine: `macapp.engine.process.main`, with the device
"mps" replaced. ``python -m tests.simulated_mps CASE`` is the child of its smoke test. Nothing
heavy is imported here at the top: the window's tests import this module, too.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import warnings
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tests import faults_of_mps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from torch import nn

    from macapp.protocol import Folders

FAULTY_STEP = 25  # of 16 in an epoch of 1000 pictures: in the second epoch
LIMIT = 16
"""Of the cases "memory": larger batches do not fit."""


def engine(case: str, smoke_test: str = "") -> Callable[[Connection, Connection, Folders], None]:
    """Return the ``main`` of an engine with a case of trouble.

    ``smoke_test`` is the trouble of its smoke test, which then really runs; "" passes at once.
    """
    return partial(_main, case=case, smoke_test=smoke_test)


def _main(
    connection: Connection, stderr: Connection, folders: Folders, *, case: str, smoke_test: str
) -> None:
    from macapp.engine import environment, process

    environment.prepare()
    with installed(case, smoke_test):
        process.main(connection, stderr, folders)


@contextmanager
def installed(case: str, smoke: str = "") -> Iterator[None]:
    """Have a Metal with a case of trouble, and a smoke test with another, while this is entered."""
    import torch

    from macapp import machine
    from macapp.engine import datasets, devices, diagnosis, memory, smoke_test, timing
    from tests.engine import fake_mps, small_digits

    computer = machine.Machine(
        processor="Apple M1",
        model="MacBookAir10,1",
        architecture="arm64",
        is_apple_silicon=True,
        system="macOS",
        system_version="15.6",
        system_build="24G84",
    )
    facts = diagnosis.MpsFacts(
        system="Darwin",
        is_built=True,
        is_available=True,
        torch_version="2.14.1",
        computer=computer,
    )
    anything: Any = _device(case)
    devices.DEVICES["mps"] = anything
    diagnosis.mps_facts = lambda: facts
    datasets.load = lambda *_arguments: small_digits.make()
    if smoke:
        anything = lambda _kind: [sys.executable, "-m", "tests.simulated_mps", smoke]  # noqa: E731
        smoke_test.command = anything
        smoke_test.run = partial(smoke_test.run, timeout_s=2.0)
    else:
        smoke_test.run = lambda *_arguments, **_options: smoke_test.SmokeResult("passed")
    if case == "missing attributes":  # torch 2.2.2
        for module, name in (
            (torch.mps, "recommended_max_memory"),
            (torch.backends.mps, "is_macos_or_newer"),
            (torch.backends.mps, "get_name"),
        ):
            if hasattr(module, name):
                delattr(module, name)
    if case == "stuck":
        step: Any = lambda self, closure=None: None  # noqa: E731
        torch.optim.SGD.step = step  # type: ignore[method-assign]
    if case == "sleep":
        clock: Any = _WallClock
        setattr(timing, "time", clock)  # noqa: B010
    if case == "process grows":
        grown = iter(range(0, 100))
        memory.process_bytes = lambda: next(grown) * 2**30
    with fake_mps.installed():
        yield


class _WallClock:
    """The module ``time``, whose wall clock can jump ahead as it does when a computer wakes up."""

    ahead = 0.0
    perf_counter = staticmethod(time.perf_counter)

    @classmethod
    def time(cls) -> float:
        return time.time() + cls.ahead


def _device(case: str) -> type[Any]:
    from macapp.protocol import DeviceMemory
    from tests.engine.fake_mps import FakeMps

    class SimulatedMps(FakeMps):
        """Counts training steps; trouble comes at one of them."""

        epochs_seen = 0

        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def place(self, network: nn.Module) -> nn.Module:
            placed = super().place(network)
            placed.register_forward_pre_hook(self._trouble)
            return placed

        def _trouble(self, network: nn.Module, inputs: tuple[Any, ...]) -> Any:
            if not network.training:
                return (inputs[0] * 0,) if case == "parity" else None
            self.steps += 1
            return cause_trouble(case, self.steps, inputs)

        def memory(self) -> DeviceMemory | None:
            if case == "driver grows":
                return DeviceMemory(2**20, self.steps * 2**28)
            return super().memory()

    return SimulatedMps


def cause_trouble(case: str, step: int, inputs: tuple[Any, ...]) -> Any:
    """Do what a case does at a training step; return other inputs, or None."""
    name, _, number = case.partition(" ")
    if name == "exception" and step == FAULTY_STEP:
        text, kind, _ = faults_of_mps.EXCEPTIONS[int(number)]
        raise kind(text)
    if name == "memory" and step >= FAULTY_STEP and len(inputs[0]) > LIMIT:
        text, kind, _ = faults_of_mps.EXCEPTIONS[int(number)]
        raise kind(text)
    if name == "nothing_fits" and step >= FAULTY_STEP:
        raise RuntimeError(faults_of_mps.EXCEPTIONS[0][0])
    if name == "crash" and step == FAULTY_STEP:
        words, how, _ = faults_of_mps.CRASHES[int(number)]
        os.write(2, (words + "\n").encode())
        end(how)
    if name == "garbage" and step == FAULTY_STEP:
        os.write(2, faults_of_mps.GARBAGE[int(number)].encode())
    if name == "hang" and step == FAULTY_STEP:
        time.sleep(1000)
    if name == "fallback":
        for operator in ("im2col", "col2im.out", "im2col"):
            warnings.warn(faults_of_mps.FALLBACK.format(name=operator), UserWarning, stacklevel=1)
    if name == "nan" and step == FAULTY_STEP:
        return (inputs[0] * float("nan"),)
    if name == "gil" and step == FAULTY_STEP:
        ctypes.PyDLL(None).sleep(2)  # as torch.mps.synchronize() up to 2.12: the GIL stays held
    if name == "sleep" and step == FAULTY_STEP:
        _WallClock.ahead = 3600.0
    if name == "slow_first" and step == 1:
        time.sleep(2)
    return None


def end(how: int) -> None:
    """End this process by a signal (negative) or with an exit code."""
    if how < 0:
        os.kill(os.getpid(), -how)
        time.sleep(10)
    os._exit(how)


def _smoke_test_child(case: str) -> None:
    """Be the child of the smoke test: the real one, with a device in trouble."""
    import torch

    from macapp.engine import devices, smoke_test
    from tests.engine import fake_mps

    class Troubled(fake_mps.FakeMps):
        """Fails at what the case says."""

        def put(self, tensor: torch.Tensor) -> torch.Tensor:
            if case == "memory":
                raise RuntimeError(faults_of_mps.EXCEPTIONS[7][0])
            return super().put(tensor)

        def place(self, network: Any) -> Any:
            if case == "crash":
                os.write(2, (faults_of_mps.CRASHES[0][0] + "\n").encode())
                end(faults_of_mps.CRASHES[0][1])
            if case == "hang":
                time.sleep(1000)
            if case == "garbage":
                os.write(2, faults_of_mps.GARBAGE[0].encode())
            placed = super().place(network)
            if case == "training":
                with torch.no_grad():
                    next(placed.parameters()).mul_(1.5)
            return placed

        def read(self, tensor: torch.Tensor) -> torch.Tensor:
            copy = super().read(tensor)
            if case == "assignment" and tensor.tolist() == [0.0, 1.0, 3.0]:
                return torch.tensor([0.0, 3.0, 3.0])
            if case == "argmax" and tensor.dtype == torch.int64:
                return torch.full_like(copy, -(2**63))
            return copy

    anything: Any = Troubled
    devices.DEVICES["mps"] = anything
    with fake_mps.installed():
        sys.exit(smoke_test.main("mps"))


if __name__ == "__main__":
    _smoke_test_child(sys.argv[1])
