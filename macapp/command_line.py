"""The command line: the window by default, or training, device facts and the self-test."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from macapp import __version__, comparison_text, comparisons, resources
from macapp.comparisons import BlockTimed, ComparisonDone, Contender, parse_contender
from macapp.messages import Failure, Message, UserError
from macapp.protocol import (
    PRESETS,
    DeviceKind,
    DeviceStatus,
    EpochDone,
    FieldError,
    JobStarted,
    RunNotice,
    TrainingConfig,
    Versions,
    fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from macapp.machine import Machine
    from macapp.protocol import FieldInfo

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


class TrainingResult(msgspec.Struct, frozen=True):
    """What ``train`` writes to result.json."""

    config: TrainingConfig
    device: DeviceKind | None
    """Where it was trained; None if it did not begin."""
    outcome: str
    """"finished", "stopped" or "failed"."""
    machine: Any
    versions: Versions
    epochs: list[EpochDone]
    notices: list[str]
    """What its owner should know of the run: operators on the CPU, errors of the GPU, sleep."""


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say; return the exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return command(options)
    except UserError as error:
        _print_failure(error.failure)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="metal-trainer",
        description="Train a convolutional network and watch it learn. "
        "Without arguments the window opens.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    test = parser.add_argument_group("self-test")
    test.add_argument(
        "--self-test",
        metavar="REPORT.json",
        type=Path,
        help="open the window, train as a user would, write what was measured, and quit",
    )
    test.add_argument("--screenshots", metavar="DIR", type=Path, help="save a PNG of every page")
    test.add_argument(
        "--size", metavar="WIDTHxHEIGHT", type=_size, default=(1280, 800), help="of the window"
    )
    test.add_argument("--appearance", choices=("automatic", "light", "dark"), default="automatic")
    for name, default in (("device", "auto"), ("epochs", 1)):
        _add_field(test, next(info for info in fields() if info.name == name), default)
    parser.set_defaults(run=_open_window)

    commands = parser.add_subparsers(title="commands")
    train = commands.add_parser("train", help="train without a window")
    train.add_argument("--preset", choices=tuple(PRESETS), default="article")
    for info in fields():
        _add_field(train, info, default=None)
    train.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write result.json and weights.safetensors there",
    )
    train.set_defaults(run=_train)
    smoke_test = commands.add_parser(
        "smoke-test", help="try whether a device computes what the CPU computes"
    )
    smoke_test.add_argument("--device", choices=("mps", "cuda", "cpu"), default="mps")
    smoke_test.set_defaults(run=_smoke_test)
    compare = commands.add_parser("compare", help="measure how much faster one device is")
    compare.add_argument(
        "--contenders",
        type=_contenders,
        metavar="A,B",
        help="what is compared, the reference first: cpu, cpu:4 (threads), mps, cuda; "
        "by default the CPU and the GPU, or one core and all",
    )
    compare.add_argument("--preset", choices=tuple(PRESETS), default="article")
    for info in fields():
        if info.name not in ("device", "epochs"):
            _add_field(compare, info, default=None)
    compare.add_argument(
        "--budget", type=_seconds, default=60.0, metavar="SECONDS", help="for all of it: 60"
    )
    compare.add_argument("--sweep", action="store_true", help="measure other batch sizes, too")
    compare.add_argument("--output", type=Path, metavar="FILE.json", help="write the result there")
    compare.add_argument(
        "--show", type=Path, nargs="+", metavar="FILE.json", help="print results as a table"
    )
    compare.set_defaults(run=_compare)
    # For the comparison itself: a contender is a process of its own.
    commands.add_parser("contender").set_defaults(run=_contender)
    devices = commands.add_parser("devices", help="show what this computer can train on")
    devices.add_argument("--json", action="store_true", help="print JSON")
    devices.set_defaults(run=_devices)
    return parser


def _add_field(parser: Any, info: FieldInfo, default: object) -> None:
    """Add an option for a hyperparameter; its limits and help are those of the form."""

    def value(text: str) -> str | int | float:
        try:
            return info.parse(text)
        except FieldError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    metavar = "|".join(info.choices) if info.choices else info.name.upper()
    parser.add_argument(
        "--" + info.name.replace("_", "-"),
        type=value,
        metavar=metavar,
        default=default,
        help=str(info.help),
    )


def _open_window(options: argparse.Namespace) -> int:
    if options.self_test is None:
        from macapp import app

        return app.run()
    from macapp import self_test

    for folder in (options.self_test.parent, options.screenshots):
        if folder is not None:
            _make_folder(folder)
    report = self_test.run(
        device=options.device,
        epochs=options.epochs,
        screenshots=options.screenshots,
        appearance=options.appearance,
        size=options.size,
    )
    _write_json(options.self_test, report)
    return 0 if report.ok else 1


def _size(text: str) -> tuple[int, int]:
    try:
        width, height = text.split("x")
        return int(width), int(height)
    except ValueError:
        raise argparse.ArgumentTypeError("must be like 1280x800") from None


def _print_failure(failure: Failure) -> None:
    print(f"{failure.what}\n{failure.remedy}", file=sys.stderr)


def _smoke_test(options: argparse.Namespace) -> int:
    from macapp.engine import environment, smoke_test

    environment.prepare()
    return smoke_test.main(options.device)


def _contenders(text: str) -> tuple[Contender, ...]:
    try:
        contenders = tuple(parse_contender(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if len(set(contenders)) < max(2, len(contenders)):
        raise argparse.ArgumentTypeError("name two or more different contenders")
    return contenders


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be from 1 to 3600 seconds")
    return seconds


def _contender(_options: argparse.Namespace) -> int:
    from macapp.engine import environment

    environment.prepare()
    from macapp.engine import contender

    return contender.serve()


def _config(options: argparse.Namespace) -> TrainingConfig:
    """Return the preset with whatever was given besides."""
    given = {info.name: getattr(options, info.name, None) for info in fields()}
    given = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(PRESETS[options.preset], **given)


def _compare(options: argparse.Namespace) -> int:
    if options.show is not None:
        print(comparison_text.table([comparisons.read(path) for path in options.show]))
        return 0
    from macapp.engine import environment

    environment.prepare()
    from macapp.engine import comparison
    from macapp.engine.diagnosis import DeviceSurvey

    devices = DeviceSurvey().complete()
    config = comparisons.ComparisonConfig(
        job=_config(options),
        contenders=options.contenders or comparison.default_contenders(devices),
        budget_seconds=options.budget,
        sweeps=options.sweep,
    )
    if options.output is not None:
        _make_folder(options.output.parent)
    stopped = threading.Event()
    signal.signal(signal.SIGINT, lambda *_signal: stopped.set())  # what is known is kept
    events = comparison.compare(config, resources.folder(), devices, is_stopped=stopped.is_set)
    for event in events:
        if isinstance(event, BlockTimed):
            print(f"{event.contender}: {event.images_per_second:,.0f} images/s", flush=True)
        elif isinstance(event, ComparisonDone):
            result = event.result
    print(comparison_text.summary(result))
    if options.output is not None:
        _write_bytes(options.output, comparisons.encode(result))
    return 0 if result.speed_up is not None else 1


def _train(options: argparse.Namespace) -> int:
    from macapp.engine import environment

    environment.prepare()
    from macapp import machine
    from macapp.engine import checkpoint, failures, training, versions
    from macapp.engine.diagnosis import DeviceSurvey
    from macapp.engine.fallbacks import FallbackRecorder
    from macapp.engine.stderr_watch import watch_stderr

    config = _config(options)
    network, dataset, device = training.assemble(config, resources.folder(), DeviceSurvey())
    if options.output is not None:
        _make_folder(options.output)

    epochs: list[EpochDone] = []
    notices: list[str] = []
    outcome, code = "finished", 0
    try:
        with FallbackRecorder() as fallbacks, watch_stderr() as stderr:
            for event in training.train(config, network, dataset, device):
                if isinstance(event, JobStarted):
                    print(f"{device.kind}: {event.parameters:,} parameters", flush=True)
                elif isinstance(event, EpochDone):
                    fallbacks.settle()
                    epochs.append(event)
                    print(_epoch_line(event, config), flush=True)
                for notice in (event, fallbacks.news(), stderr.news()):
                    if isinstance(notice, RunNotice):
                        notices.append(str(notice.message))
                        print(notice.message, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        outcome, code = "stopped", INTERRUPTED
        print("Stopped.", file=sys.stderr)
    except Exception as error:
        outcome, code = "failed", 1
        _print_failure(failures.describe(error))
    if options.output is not None:
        result = TrainingResult(
            config, device.kind, outcome, machine.collect(), versions.collect(), epochs, notices
        )
        _write_json(options.output / "result.json", result)
        checkpoint.save_weights(network, options.output / "weights.safetensors")
    return code


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error


def _write_json(path: Path, value: object) -> None:
    _write_bytes(path, msgspec.json.format(msgspec.json.encode(value), indent=2))


def _write_bytes(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(
        Failure(
            Message("{path} cannot be written.", {"path": str(path)}),
            Message("Choose a folder that you may write to and that has room."),
            str(error),
        )
    )


def _epoch_line(event: EpochDone, config: TrainingConfig) -> str:
    return (
        f"epoch {event.epoch}/{config.epochs}: {event.seconds:.2f} s, "
        f"{event.images_per_second:,.0f} images/s, train loss {event.train_loss:.4f}, "
        f"test loss {event.test_loss:.4f}, test accuracy {100 * event.test_accuracy:.2f} %"
    )


class DeviceReport(msgspec.Struct, frozen=True):
    """What ``devices --json`` prints: the facts of the device card."""

    machine: Any
    versions: Versions
    devices: list[dict[str, object]]


def _devices(options: argparse.Namespace) -> int:
    from macapp.engine import environment

    environment.prepare()
    from macapp import machine
    from macapp.engine import versions
    from macapp.engine.diagnosis import DeviceSurvey

    computer, found, known = machine.collect(), DeviceSurvey().complete(), versions.collect()
    if options.json:
        report = DeviceReport(computer, known, [_device_facts(status) for status in found])
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print(_machine_line(computer))
        print(f"PyTorch {known.torch}, Python {known.python}")
        for status in found:
            print(f"{status.kind:5} {'ready' if status.ready else 'no   '}  {status.reason}")
            if status.remedy is not None:
                print(f"             {status.remedy}")
    return 0


def _device_facts(status: DeviceStatus) -> dict[str, object]:
    return {
        "kind": status.kind,
        "ready": status.ready,
        "verdict": status.verdict,
        "reason": str(status.reason),
        "remedy": str(status.remedy or ""),
        "details": status.details,
    }


def _machine_line(computer: Machine) -> str:
    memory = f"{computer.memory_bytes / 2**30:.0f} GB"
    system = f"{computer.system} {computer.system_version}".strip()
    return f"{computer.processor}, {computer.physical_cores} cores, {memory}, {system}"
