"""Why each device can or cannot train here, in words that help; and the choice among them."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import msgspec
import torch

from macapp import machine
from macapp.engine import smoke_test
from macapp.engine.devices import DEVICES, Device
from macapp.machine import Machine
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError
from macapp.protocol import DeviceKind, DeviceStatus, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from macapp.engine.smoke_test import SmokeResult

Version = tuple[int, ...]

# The oldest macOS whose MPS works with a PyTorch, from that PyTorch on. Not what PyTorch says of
# itself: 2.5 names 12.3 and fails there (pytorch#139425), and all up to 2.14 give the version as
# the reason whatever the reason is (pytorch#177819).
MACOS_NEEDED: tuple[tuple[Version, Version], ...] = (
    ((2, 15), (15, 0)),
    ((2, 9), (14, 0)),
    ((2, 5), (13, 0)),
    ((2, 2), (12, 3)),
)
# The newest PyTorch whose MPS works, from that macOS on, on an Apple chip. From 15 on: any.
NEWEST_TORCH: tuple[tuple[Version, str], ...] = (
    ((14, 0), "2.14.1"),
    ((13, 0), "2.8.0"),
    ((12, 3), "2.4.1"),
)


class MpsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the verdict on MPS depends on, but for the smoke test."""

    system: str
    """As `platform.system()` has it: "Darwin" on a Mac."""
    is_built: bool
    is_available: bool
    torch_version: str
    computer: Machine = machine.Machine()

    def details(self) -> str:
        """Return the facts as text, one a line, for *Copy diagnostics*."""
        computer = self.computer
        lines = [
            f"torch {self.torch_version}, MPS built: {self.is_built}, "
            f"available: {self.is_available}",
            f"{computer.system} {computer.system_version} ({computer.system_build}), "
            f"{computer.processor}, {computer.model}, Python for {computer.architecture}",
            f"Rosetta: {computer.is_translated}, virtual machine: {computer.is_virtual}",
        ]
        # The article's own check: the line "Metal" of system_profiler SPDisplaysDataType.
        lines += [f"{gpu.name}: Metal: {gpu.metal or 'not stated'}" for gpu in computer.gpus]
        return "\n".join(lines)

    def smoke_test_key(self) -> str:
        """Return what a result of the smoke test holds for."""
        computer = self.computer
        parts = (
            f"v{smoke_test.VERSION}",
            computer.model,
            computer.processor,
            computer.system_version,
            computer.system_build,
            self.torch_version,
        )
        return "|".join(parts)


def mps_facts() -> MpsFacts:
    """Gather them; on a Mac some commands are asked, 2 s at worst."""
    system = platform.system()
    return MpsFacts(
        system=system,
        is_built=torch.backends.mps.is_built(),
        is_available=torch.backends.mps.is_available(),
        torch_version=public_version(),
        computer=machine.collect() if system == "Darwin" else machine.Machine(),
    )


def judge_mps(facts: MpsFacts, smoke: SmokeResult | None = None) -> DeviceStatus:
    """Return the verdict on MPS; "checking" if all depends on a smoke test not yet made."""
    if facts.system != "Darwin":
        text = QT_TRANSLATE_NOOP("Message", "Metal exists only on a Mac.")
        return DeviceStatus("mps", "not_here", Message(text))
    for rule in (_rosetta, _not_built, _virtual_machine, _old_macos, _unavailable):
        status = rule(facts)
        if status is not None:
            return status
    if smoke is None:
        text = QT_TRANSLATE_NOOP("Message", "Being tested…")
        return DeviceStatus("mps", "checking", Message(text), details=facts.details())
    if smoke.passed:
        text = QT_TRANSLATE_NOOP("Message", "Ready: computes what the CPU computes.")
        return DeviceStatus("mps", "ready", Message(text), details=facts.details())
    remedy = QT_TRANSLATE_NOOP(
        "Message",
        "Update macOS, restart the Mac, then press “Test again”. Until then train on the CPU.",
    )
    details = f"{facts.details()}\nsmoke test: {smoke.outcome} in {smoke.stage}\n{smoke.details}"
    return DeviceStatus("mps", "failed", smoke.reason(), Message(remedy), details)


def _no(facts: MpsFacts, verdict: Verdict, reason: str, remedy: str, **values: str) -> DeviceStatus:
    return DeviceStatus(
        "mps",
        verdict,
        Message(reason, dict(values)),
        Message(remedy, dict(values)),
        facts.details(),
    )


def _rosetta(facts: MpsFacts) -> DeviceStatus | None:
    if not facts.computer.is_translated:
        return None
    return _no(
        facts,
        "rosetta",
        QT_TRANSLATE_NOOP(
            "Message",
            "This Mac has an Apple chip, but Metal Trainer runs as an Intel program, translated "
            "by Rosetta.",
        ),
        QT_TRANSLATE_NOOP(
            "Message",
            "Install Metal Trainer with a Python made for Apple chips (python.org, “universal2” "
            "installer), from a Terminal that is not opened using Rosetta.",
        ),
    )


def _not_built(facts: MpsFacts) -> DeviceStatus | None:
    if facts.is_built:
        return None
    return _no(
        facts,
        "not_built",
        QT_TRANSLATE_NOOP("Message", "This PyTorch ({torch}) was built without Metal."),
        QT_TRANSLATE_NOOP(
            "Message",
            "Install Metal Trainer again as its page says: that brings a PyTorch with it.",
        ),
        torch=facts.torch_version,
    )


def _virtual_machine(facts: MpsFacts) -> DeviceStatus | None:
    if not facts.computer.is_virtual:
        return None
    return _no(
        facts,
        "virtual_machine",
        QT_TRANSLATE_NOOP("Message", "This is a virtual machine, where Metal cannot compute."),
        QT_TRANSLATE_NOOP(
            "Message", "Start Metal Trainer on the Mac itself, or train on the CPU here."
        ),
    )


def _old_macos(facts: MpsFacts) -> DeviceStatus | None:
    has, needs = version(facts.computer.system_version), macos_needed(facts.torch_version)
    if not has or has >= needs:
        return None
    fitting = torch_for(has, is_apple_silicon=facts.computer.is_apple_silicon)
    if fitting:
        remedy = QT_TRANSLATE_NOOP(
            "Message",
            "Update macOS to {needed} or later in System Settings, General, Software Update. If "
            "this Mac cannot be updated, install Metal Trainer with PyTorch {fitting}: its page "
            "says how, under “Older Macs”.",
        )
    else:
        remedy = QT_TRANSLATE_NOOP(
            "Message",
            "Update macOS to {needed} or later in System Settings, General, Software Update. No "
            "PyTorch works with Metal on this one.",
        )
    return _no(
        facts,
        "macos_too_old",
        QT_TRANSLATE_NOOP(
            "Message",
            "macOS {macos} is too old: PyTorch {torch} needs {needed} or later for Metal.",
        ),
        remedy,
        macos=facts.computer.system_version,
        torch=facts.torch_version,
        needed=".".join(str(part) for part in needs if part or part is needs[0]),
        fitting=fitting,
    )


def _unavailable(facts: MpsFacts) -> DeviceStatus | None:
    if facts.is_available:
        return None
    if not facts.computer.is_apple_silicon:
        return _no(
            facts,
            "intel",
            QT_TRANSLATE_NOOP(
                "Message", "This Intel Mac has no graphics processor that PyTorch can use."
            ),
            QT_TRANSLATE_NOOP(
                "Message",
                "Train on the CPU. Only Intel Macs with an AMD graphics processor can use Metal, "
                "and only with PyTorch 2.2.2.",
            ),
        )
    return _no(
        facts,
        "no_access",
        QT_TRANSLATE_NOOP("Message", "macOS gives this app no access to the graphics processor."),
        QT_TRANSLATE_NOOP(
            "Message",
            "Open Metal Trainer by a double click on the Mac itself: from a remote session (ssh) "
            "or from inside another app's sandbox Metal cannot be reached.",
        ),
    )


def macos_needed(torch_version: str) -> Version:
    """Return the oldest macOS on which the MPS of a PyTorch works."""
    found = version(torch_version)
    return next((macos for torch, macos in MACOS_NEEDED if found >= torch), (12, 3))


def torch_for(macos: Version, *, is_apple_silicon: bool) -> str:
    """Return the newest PyTorch whose MPS works on a macOS, "" if none does."""
    if not is_apple_silicon:
        return "2.2.2" if macos >= (12, 3) else ""
    return next((torch for oldest, torch in NEWEST_TORCH if macos >= oldest), "")


def version(text: str) -> Version:
    """Return "15.6.1" as (15, 6, 1); () for anything that does not begin with a number."""
    parts = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits[:9]))
        if digits != part:
            break
    return tuple(parts)


def public_version() -> str:
    """Return the version of the PyTorch that is here, without "+cpu" or the like."""
    return str(torch.__version__).split("+")[0]


# The other devices -----------------------------------------------------------------------------


def judge_cpu() -> DeviceStatus:
    """Return that the CPU is there, and how many threads compute."""
    text = QT_TRANSLATE_NOOP("Message", "Ready, with {threads} threads.")
    return DeviceStatus("cpu", "ready", Message(text, {"threads": torch.get_num_threads()}))


def judge_cuda() -> DeviceStatus:
    """Return whether an NVIDIA GPU computes here, proved by one small multiplication."""
    if platform.system() == "Darwin":
        text = QT_TRANSLATE_NOOP("Message", "CUDA needs an NVIDIA GPU; a Mac has Metal instead.")
        return DeviceStatus("cuda", "not_here", Message(text))
    if torch.version.cuda is None:
        text = QT_TRANSLATE_NOOP("Message", "This PyTorch was built without CUDA.")
        return DeviceStatus("cuda", "not_built", Message(text))
    if not torch.cuda.is_available():
        text = QT_TRANSLATE_NOOP("Message", "No NVIDIA GPU was found.")
        return DeviceStatus("cuda", "not_here", Message(text))
    remedy = Message(QT_TRANSLATE_NOOP("Message", "Restart the computer, or train on the CPU."))
    try:
        result = (torch.ones(2, device="cuda") * 2).cpu().tolist()
    except Exception as error:
        text = QT_TRANSLATE_NOOP("Message", "It is there, but a first small task failed.")
        details = f"{type(error).__name__}: {error}"
        return DeviceStatus("cuda", "failed", Message(text), remedy, details)
    if result != [2.0, 2.0]:
        text = QT_TRANSLATE_NOOP("Message", "It is there, but computes wrong numbers.")
        return DeviceStatus("cuda", "failed", Message(text), remedy)
    text = QT_TRANSLATE_NOOP("Message", "Ready: {gpu}.")
    return DeviceStatus("cuda", "ready", Message(text, {"gpu": torch.cuda.get_device_name()}))


class DeviceSurvey:
    """What is known of every device, and the smoke test of MPS when it is needed."""

    def __init__(self, cache: Path | None = None) -> None:
        """Look, but test nothing that takes long; ``cache`` remembers the test's result."""
        self._memory = smoke_test.Memory(cache)
        self._facts = mps_facts()
        smoke = self._memory.recall(self._facts.smoke_test_key())
        self._statuses: dict[DeviceKind, DeviceStatus] = {
            "mps": judge_mps(self._facts, smoke),
            "cuda": judge_cuda(),
            "cpu": judge_cpu(),
        }

    @property
    def statuses(self) -> tuple[DeviceStatus, ...]:
        """The state of every kind of device, in the order in which Automatic prefers them."""
        return tuple(self._statuses.values())

    @property
    def is_complete(self) -> bool:
        """Whether no test is outstanding."""
        return all(status.verdict != "checking" for status in self.statuses)

    def complete(self, *, again: bool = False) -> tuple[DeviceStatus, ...]:
        """Make the smoke test if it is outstanding, or ``again``; return what is known then.

        It takes the time PyTorch needs to load, and 20 s more a stage if the GPU hangs.
        """
        if again:
            self._facts = mps_facts()
        if judge_mps(self._facts).verdict == "checking" and (again or not self.is_complete):
            result = smoke_test.run(smoke_test.command("mps"))
            if result.outcome != "not_run":
                self._memory.keep(self._facts.smoke_test_key(), result)
            self._statuses["mps"] = judge_mps(self._facts, result)
        elif again:
            self._statuses["mps"] = judge_mps(self._facts)
        return self.statuses

    def choose(self, wanted: str) -> Device:
        """Return the device for a configuration's ``device``; "auto" takes the first ready one.

        Raises:
            UserError: the wanted device cannot train here.
        """
        statuses = self.complete()
        if wanted != "auto":
            statuses = tuple(status for status in statuses if status.kind == wanted)
        for status in statuses:
            if status.ready:
                return DEVICES[status.kind]()
        another = QT_TRANSLATE_NOOP("Message", "Choose another device, for example the CPU.")
        status = statuses[-1]
        remedy = status.remedy or Message(another)
        raise UserError(
            Failure(status.reason, remedy, status.details, "unavailable", blames_device=True)
        )
