"""One comparison of devices, as a generator of events. The method, version 1.

1. Every contender is a process of its own. It makes the weights on the CPU from the seed, and draws
   the batches on the CPU from the same seed: all train the same network on the same pictures in
   the same order, with the loop that also trains in the app, in float32.
2. It trains 100 steps whose losses are read: do the contenders compute the same? Then it goes on
   until times settle, and none of that counts: kernels are compiled, clocks rise.
3. Contenders take turns, in blocks of whole steps of at least a second: A B, B A, A B, … What
   changes slowly, as heat does, then hits all of them alike. A block begins and ends with the
   device's queue empty, and nothing is read from the device inside. All batches are full, so
   that every step has the same shapes.
4. Blocks are taken until the time is up, at least 6 of each; or earlier, from 12 on, when the
   interval is narrower than 1 % on each side.
5. The speed-up is the ratio of the median times of a step, its interval that of
   `macapp.engine.statistics.speed_up`.
6. At last each contender passes over the test pictures, for the time of a whole epoch.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import psutil

from macapp import faults, machine
from macapp.comparisons import (
    METHOD_VERSION,
    BlockTimed,
    ComparisonDone,
    ComparisonResult,
    Contender,
    ContenderResult,
    Measuring,
    Note,
    Parity,
    Parts,
    SpeedUp,
    SweepPoint,
)
from macapp.engine import contender_process, parity, statistics, versions
from macapp.engine.contender import (
    Block,
    FirstSteps,
    Prepare,
    Prepared,
    TestPass,
    Timed,
    Trained,
    Warm,
    WarmUp,
)
from macapp.engine.contender_process import ContenderError, ContenderProcess
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message
from macapp.readings import Reader, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from macapp.comparisons import ComparisonConfig, Stage
    from macapp.protocol import DeviceStatus

    Event = Measuring | BlockTimed | ComparisonDone

FIRST_STEPS = 100
REORDERED_RUNS = 3
MIN_ROUNDS = 6
ROUNDS_TO_END_EARLY = 12
NARROW = 0.01
"""Half of the interval's width, as a share of the value, that is narrow enough to end early."""
PREPARE_TIMEOUT_S = 180.0
TIMEOUT_S = 60.0
"""For an answer, beside 10 times as long as it should take."""
SWEEP_SIZES = (16, 32, 64, 128, 256, 512, 1024)
SWEEP_BLOCK_SECONDS = 0.4
SWEEP_ROUNDS = 3
BUSY_PERCENT = 15.0
DRIFT = 0.05
JUST_STARTED_SECONDS = 600.0

Answer = TypeVar("Answer")


def default_contenders(devices: Sequence[DeviceStatus]) -> tuple[Contender, ...]:
    """Return the CPU and the GPU that is ready; one core and all of them where there is none."""
    ready = [status.kind for status in devices if status.ready]
    for kind in ready:
        if kind != "cpu":
            return Contender("cpu"), Contender(kind)
    return Contender("cpu", 1), Contender("cpu")


def compare(
    config: ComparisonConfig,
    resources: Path,
    devices: Sequence[DeviceStatus],
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    command: Callable[[], list[str]] = contender_process.command,
) -> Generator[Event, None, None]:
    """Compare; the last event is a `ComparisonDone`, also after a stop: with what is known then.

    Args:
        config: what to compare.
        resources: the folder of the data files.
        devices: which of them are ready; one that is not gets its reason instead of figures.
        is_stopped: asked every half a second.
        command: how to start a contender; for tests.

    Raises:
        UserError: the job is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="metal-trainer-compare-") as folder:
        comparison = _Comparison(config, resources, devices, is_stopped, command, Path(folder))
        try:
            yield from comparison.run()
        finally:
            comparison.close()


class _Runner:
    """A contender and what is known of it."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.name = contender.name
        self.process: ContenderProcess | None = None
        self.prepared = Prepared(contender.threads, 0, 0)
        self.step_seconds = 0.0
        self.block_steps = 1
        self.blocks: list[Timed] = []
        self.test: Timed | None = None
        self.trained: Trained | None = None
        self.failure: Failure | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None

    @property
    def times(self) -> list[float]:
        """Seconds a step, one a block."""
        return [block.seconds / self.block_steps for block in self.blocks]

    def give_up(self, error: ContenderError) -> None:
        self.failure = error.failure
        if self.process is not None:
            self.process.close()
            self.process = None


class _Comparison:
    def __init__(
        self,
        config: ComparisonConfig,
        resources: Path,
        devices: Sequence[DeviceStatus],
        is_stopped: Callable[[], bool],
        command: Callable[[], list[str]],
        folder: Path,
    ) -> None:
        self._config = config
        self._resources = resources
        self._devices = {status.kind: status for status in devices}
        self._is_stopped = is_stopped
        self._command = command
        self._folder = folder
        self._runners = [_Runner(contender) for contender in config.contenders]
        self._parities: list[Parity] = []
        self._sweep: list[SweepPoint] = []
        self._readings: list[Readings] = []
        self._reader = Reader()
        self._idle_percent: float | None = None
        self._garbage = False
        self._started = time.monotonic()
        self._stage: Stage = "preparing"

    # Asking -------------------------------------------------------------------------------------

    @property
    def _alive(self) -> list[_Runner]:
        return [runner for runner in self._runners if runner.is_alive]

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _ask(
        self,
        runner: _Runner,
        request: Prepare | FirstSteps | WarmUp | Block | TestPass,
        kind: type[Answer],
        timeout_s: float,
    ) -> Generator[Event, None, Answer]:
        """Ask a contender; raise `_StoppedError` if the user has enough."""
        assert runner.process is not None
        answers: Iterator[Answer | None] = runner.process.ask(request, kind, timeout_s)
        yield Measuring(self._stage, runner.name, self._seconds)
        for answer in answers:
            if self._is_stopped():
                raise _StoppedError
            if answer is not None:
                return answer
            yield Measuring(self._stage, runner.name, self._seconds)
        raise AssertionError("no answer")

    def close(self) -> None:
        for runner in self._alive:
            assert runner.process is not None
            runner.process.close()

    # The stages ---------------------------------------------------------------------------------

    def run(self) -> Generator[Event, None, None]:
        was_stopped = False
        try:
            yield from self._prepare()
            yield from self._check()
            yield from self._warm_up()
            yield from self._measure()
            yield from self._test()
            if self._config.sweeps:
                yield from self._sweep_sizes()
        except _StoppedError:
            was_stopped = True
        yield ComparisonDone(self._result(was_stopped))

    def _prepare(self) -> Generator[Event, None, None]:
        for runner in self._runners:
            status = self._devices.get(runner.contender.device)
            if status is not None and not status.ready:
                remedy = status.remedy or Message("")
                runner.failure = Failure(status.reason, remedy, status.details, "unavailable")
                continue
            try:
                runner.process = ContenderProcess(self._command())
                prepare = Prepare(
                    self._config.job,
                    runner.contender.device,
                    runner.contender.threads,
                    str(self._resources),
                )
                runner.prepared = yield from self._ask(runner, prepare, Prepared, PREPARE_TIMEOUT_S)
            except ContenderError as error:
                runner.give_up(error)
        psutil.cpu_percent()
        time.sleep(0.5)  # everything of ours is idle: what is busy now is somebody else's
        self._idle_percent = psutil.cpu_percent()

    def _check(self) -> Generator[Event, None, None]:
        """Train the first steps everywhere, and on the reference in other orders of summation."""
        self._stage = "checking"
        for runner in self._alive:
            runner.trained = yield from self._first_steps(runner, 0)
        reference = self._runners[0]
        reordered: list[Trained] = []
        if reference.trained is not None:
            for seed in range(1, REORDERED_RUNS + 1):
                trained = yield from self._first_steps(reference, seed)
                if trained is not None:
                    reordered.append(trained)
        self._parities = [
            parity.judge(
                (reference.name, runner.name),
                reference.trained,
                runner.trained,
                reordered,
                self._update_path(reference, 0),
                self._update_path(runner, 0),
            )
            for runner in self._runners[1:]
        ]

    def _update_path(self, runner: _Runner, reorder: int) -> Path:
        return self._folder / f"{self._runners.index(runner)}-{reorder}.safetensors"

    def _first_steps(self, runner: _Runner, reorder: int) -> Generator[Event, None, Trained | None]:
        request = FirstSteps(FIRST_STEPS, str(self._update_path(runner, reorder)), reorder)
        try:
            return (yield from self._ask(runner, request, Trained, 2 * TIMEOUT_S))
        except ContenderError as error:
            runner.give_up(error)
            return None

    def _warm_up(self) -> Generator[Event, None, None]:
        self._stage = "preparing"
        for runner in self._alive:
            try:
                request = WarmUp(self._config.job.batch_size)
                warm = yield from self._ask(runner, request, Warm, 2 * TIMEOUT_S)
            except ContenderError as error:
                runner.give_up(error)
                continue
            runner.step_seconds = warm.step_seconds
            # A fifth more, since a block may turn out faster than the warm-up.
            seconds = 1.2 * self._config.block_seconds
            runner.block_steps = max(1, math.ceil(seconds / warm.step_seconds))

    def _measure(self) -> Generator[Event, None, None]:
        self._stage = "measuring"
        self._readings.append(self._reader.read())
        rounds = 0
        while len(self._alive) > 0 and not self._is_enough(rounds):
            order = self._alive if rounds % 2 == 0 else self._alive[::-1]
            for runner in order:
                yield from self._block(runner)
            rounds += 1
            self._readings.append(self._reader.read())

    def _block(self, runner: _Runner) -> Generator[Event, None, None]:
        expected = runner.block_steps * runner.step_seconds
        try:
            block = yield from self._ask(
                runner, Block(runner.block_steps), Timed, TIMEOUT_S + 10 * expected
            )
        except ContenderError as error:
            runner.give_up(error)
            return
        runner.blocks.append(block)
        pictures = runner.block_steps * self._config.job.batch_size
        yield BlockTimed(runner.name, pictures / block.seconds)

    def _is_enough(self, rounds: int) -> bool:
        """Return whether to end; the next round and the test pass must fit into the time."""
        alive = self._alive
        a_round = sum(r.block_steps * float(np.median(r.times)) for r in alive if r.times)
        left = self._config.budget_seconds - self._seconds - 2 * a_round
        if rounds < 2 or (left < 0 and rounds < MIN_ROUNDS and left > -self._config.budget_seconds):
            return False
        if left < 0:
            return True
        if rounds < ROUNDS_TO_END_EARLY or len(alive) < len(self._runners):
            return False
        intervals = [statistics.speed_up(alive[0].times, r.times) for r in alive[1:]]
        return all(
            max(found.high / found.value, found.value / found.low) < 1 + NARROW
            for found in intervals
        )

    def _test(self) -> Generator[Event, None, None]:
        self._stage = "testing"
        for runner in self._alive:
            try:
                # The first pass compiles its own kernels.
                yield from self._ask(runner, TestPass(), Timed, 2 * TIMEOUT_S)
                runner.test = yield from self._ask(runner, TestPass(), Timed, 2 * TIMEOUT_S)
            except ContenderError as error:
                runner.give_up(error)

    def _sweep_sizes(self) -> Generator[Event, None, None]:
        self._stage = "sweeping"
        most = min((runner.prepared.pictures for runner in self._alive), default=0)
        for size in SWEEP_SIZES:
            if size > most:
                break
            speeds = yield from self._sweep_size(size)
            self._sweep.append(SweepPoint(size, speeds))

    def _sweep_size(self, size: int) -> Generator[Event, None, list[float | None]]:
        times: dict[_Runner, list[float]] = {}
        steps: dict[_Runner, int] = {}
        for runner in self._alive:
            try:
                warm = yield from self._ask(runner, WarmUp(size), Warm, 2 * TIMEOUT_S)
            except ContenderError as error:
                self._lose(runner, error)
                continue
            times[runner] = []
            steps[runner] = max(1, math.ceil(SWEEP_BLOCK_SECONDS / warm.step_seconds))
        for number in range(SWEEP_ROUNDS):
            for runner in list(times) if number % 2 == 0 else list(times)[::-1]:
                try:
                    block = yield from self._ask(runner, Block(steps[runner]), Timed, 2 * TIMEOUT_S)
                except ContenderError as error:
                    self._lose(runner, error)
                    times.pop(runner)
                    continue
                times[runner].append(block.seconds / steps[runner])
        return [
            size / float(np.median(times[runner])) if times.get(runner) else None
            for runner in self._runners
        ]

    @staticmethod
    def _lose(runner: _Runner, error: ContenderError) -> None:
        """One size does not fit: the next may not either, but it is tried. A crash ends it."""
        if not error.is_out_of_memory:
            runner.give_up(error)

    # The result ---------------------------------------------------------------------------------

    def _result(self, was_stopped: bool) -> ComparisonResult:
        for runner in self._alive:
            assert runner.process is not None
            self._garbage |= bool(faults.garbage(runner.process.printed()))
        first, *others = self._runners
        speed_ups = []
        for runner in others:
            if min(len(first.times), len(runner.times)) >= 2:
                found = statistics.speed_up(first.times, runner.times)
                speed_ups.append(
                    SpeedUp(
                        runner.name,
                        first.name,
                        found.value,
                        found.low,
                        found.high,
                        statistics.verdict(found),
                    )
                )
        last = others[-1].name
        parities = self._parities
        return ComparisonResult(
            method_version=METHOD_VERSION,
            measured_at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            machine=machine.collect(),
            versions=versions.collect(),
            job=self._config.job,
            budget_seconds=self._config.budget_seconds,
            contenders=[self._contender_result(runner) for runner in self._runners],
            speed_up=next((found for found in speed_ups if found.name == last), None),
            speed_ups=speed_ups,
            parity=parities[-1] if parities else Parity(),
            parities=parities,
            sweep=self._sweep,
            crossing_batch_size=self._crossing(),
            notes=self._notes(),
            was_stopped=was_stopped,
        )

    def _crossing(self) -> float | None:
        known = [
            (point.batch_size, point.images_per_second[0], point.images_per_second[-1])
            for point in self._sweep
        ]
        both = [(size, a, b) for size, a, b in known if a is not None and b is not None]
        return statistics.crossing(
            [size for size, _, _ in both], [a for _, a, _ in both], [b for _, _, b in both]
        )

    def _contender_result(self, runner: _Runner) -> ContenderResult:
        times, trained = runner.times, runner.trained
        measured = {}
        if times:
            batch_size, pictures = self._config.job.batch_size, runner.prepared.pictures
            # Whole batches: the pictures of an epoch, in steps of full ones.
            epoch = statistics.spread([pictures / batch_size * seconds for seconds in times])
            measured = {
                "images_per_second": batch_size / float(np.median(times)),
                "epoch_seconds": epoch,
                "parts": self._parts(runner),
            }
            if runner.test is not None:
                measured["test_seconds"] = runner.test.seconds
                measured["whole_epoch_seconds"] = epoch.median + runner.test.seconds
        return ContenderResult(
            name=runner.name,
            device=runner.contender.device,
            threads=runner.prepared.threads,
            block_steps=runner.block_steps if times else 0,
            block_seconds=[block.seconds for block in runner.blocks],
            first_step_seconds=trained.first_step_seconds if trained else None,
            losses=trained.losses if trained else [],
            unmoved=trained.unmoved if trained else [],
            fallbacks=runner.blocks[-1].fallbacks if runner.blocks else [],
            failure=runner.failure.what if runner.failure else None,
            **measured,  # type: ignore[arg-type]
        )

    @staticmethod
    def _parts(runner: _Runner) -> Parts:
        columns = np.array(
            [
                (b.data_seconds, b.transfer_seconds, b.step_seconds, b.waiting_seconds)
                for b in runner.blocks
            ]
        )
        data, transfer, compute, waiting = np.median(columns, axis=0) / runner.block_steps
        return Parts(float(data), float(transfer), float(compute), float(waiting))

    # Fairness -----------------------------------------------------------------------------------

    def _notes(self) -> list[Note]:
        """Return what made it less fair, each only if it is true."""
        return [Note(kind, message) for kind, message in self._unfair()]

    def _unfair(self) -> Iterator[tuple[str, Message]]:
        powers = [readings.power for readings in self._readings]
        if any(power.on_battery for power in powers):
            text = QT_TRANSLATE_NOOP("Message", "The computer ran on battery.")
            yield "battery", Message(text)
        if any(power.low_power for power in powers):
            text = QT_TRANSLATE_NOOP("Message", "Low Power Mode was on.")
            yield "low_power", Message(text)
        if any(power.thermal in ("serious", "critical") for power in powers) or any(
            (power.speed_limit_percent or 100) < 100 for power in powers
        ):
            text = QT_TRANSLATE_NOOP("Message", "The computer was hot and slowed itself down.")
            yield "thermal", Message(text)
        if self._idle_percent is not None and self._idle_percent > BUSY_PERCENT:
            text = QT_TRANSLATE_NOOP(
                "Message", "Other programs took {percent} % of the processor before it began."
            )
            yield "load", Message(text, {"percent": round(self._idle_percent)})
        if time.time() - psutil.boot_time() < JUST_STARTED_SECONDS:
            text = QT_TRANSLATE_NOOP(
                "Message", "The computer had just been started, and may still have been busy."
            )
            yield "just_started", Message(text)
        if self._garbage:
            yield "garbage", Message(faults.GARBAGE_NOTICE)
        for runner in self._runners:
            yield from self._unfair_contender(runner)

    def _unfair_contender(self, runner: _Runner) -> Iterator[tuple[str, Message]]:
        values: dict[str, str | int | float] = {"name": runner.name}
        blocks = runner.blocks
        if blocks and blocks[-1].fallbacks:
            text = QT_TRANSLATE_NOOP(
                "Message", "{name}: operators that Metal lacks ran on the CPU: {operators}."
            )
            operators = ", ".join(blocks[-1].fallbacks)
            yield "fallback", Message(text, {**values, "operators": operators})
        if any(block.slept for block in blocks):
            text = QT_TRANSLATE_NOOP("Message", "{name}: the computer slept during a block.")
            yield "sleep", Message(text, {**values})
        cores = psutil.cpu_count(logical=False) or 0
        asked = runner.contender.threads
        if runner.contender.device == "cpu" and not asked and runner.prepared.threads < cores:
            text = QT_TRANSLATE_NOOP("Message", "{name}: {threads} threads for {cores} cores.")
            counts = {"threads": runner.prepared.threads, "cores": cores}
            yield "threads", Message(text, {**values, **counts})
        change = statistics.drift(runner.times)
        if abs(change) > DRIFT:
            text = (
                QT_TRANSLATE_NOOP("Message", "{name} became {percent} % slower on the way.")
                if change > 0
                else QT_TRANSLATE_NOOP("Message", "{name} became {percent} % faster on the way.")
            )
            yield "drift", Message(text, {**values, "percent": round(100 * abs(change))})
        if runner.times and len(runner.times) < MIN_ROUNDS:
            text = QT_TRANSLATE_NOOP("Message", "{name}: only {count} blocks were measured.")
            yield "few_blocks", Message(text, {**values, "count": len(runner.times)})


class _StoppedError(Exception):
    """The user has enough."""
