"""How the computer does while a job runs, without torch and without root; never raises.

On macOS `ioreg`, `pmset` and `sysctl` are asked; what a system does not tell is None.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Literal, TypeAlias

import msgspec
import psutil

from macapp import foundation
from macapp.machine import Runner, run_command

Pressure: TypeAlias = Literal["normal", "warning", "critical"]
Thermal: TypeAlias = Literal["nominal", "fair", "serious", "critical"]

GPU_COMMAND = ("/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
POWER_COMMAND = ("/usr/bin/pmset", "-g")
SOURCE_COMMAND = ("/usr/bin/pmset", "-g", "batt")
THERMAL_COMMAND = ("/usr/bin/pmset", "-g", "therm")
MEMORY_COMMAND = (
    "/bin/sh",
    "-c",
    "/usr/sbin/sysctl kern.memorystatus_vm_pressure_level vm.swapusage; true",
)
TIMEOUT_S = 0.8
SLOW_SECONDS = 10.0
"""Power settings change seldom: they are asked so often, the rest at every reading."""


class Power(msgspec.Struct, frozen=True):
    """Where the power comes from, and what holds the computer back."""

    on_battery: bool | None = None
    low_power: bool | None = None
    thermal: Thermal | None = None
    speed_limit_percent: int | None = None
    """Of an Intel Mac's processor: below 100 it is slowed down because it is hot."""


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the computer; None is unknown."""

    process_bytes: int | None = None
    """Memory of the engine's process."""
    swap_bytes: int | None = None
    pressure: Pressure | None = None
    cpu_percent: float | None = None
    """Of all cores together, 0 to 100."""
    gpu_percent: float | None = None
    gpu_resets: int | None = None
    power: Power = Power()


class Reader:
    """Takes a reading at a time, from one thread."""

    def __init__(self, run: Runner = run_command, platform: str = sys.platform) -> None:
        """Ask by ``run``; the arguments are for tests."""
        self._run = run
        self._platform = platform
        self._power = Power()
        self._power_at = float("-inf")
        psutil.cpu_percent()  # the first call has nothing to compare with

    def read(self, engine_pid: int = 0) -> Readings:
        """Look; takes some 0.05 s on a Mac, 2 s at worst."""
        now = time.monotonic()
        if now - self._power_at >= SLOW_SECONDS:
            self._power, self._power_at = self._read_power(), now
        is_mac = self._platform == "darwin"
        memory = self._ask(MEMORY_COMMAND) if is_mac else ""
        gpu = self._ask(GPU_COMMAND) if is_mac else ""
        return Readings(
            process_bytes=_process_bytes(engine_pid),
            swap_bytes=parse_swap(memory) if is_mac else _swap_bytes(),
            pressure=parse_pressure(memory),
            cpu_percent=_cpu_percent(),
            gpu_percent=parse_gpu_percent(gpu),
            gpu_resets=parse_gpu_resets(gpu),
            power=self._power,
        )

    def _read_power(self) -> Power:
        if self._platform != "darwin":
            return Power(on_battery=_on_battery())
        settings = self._ask(POWER_COMMAND)
        low_power = foundation.is_low_power_mode()
        return Power(
            on_battery=parse_on_battery(self._ask(SOURCE_COMMAND)),
            low_power=parse_low_power(settings) if low_power is None else low_power,
            thermal=thermal_state(foundation.thermal_state()),
            speed_limit_percent=parse_speed_limit(self._ask(THERMAL_COMMAND)),
        )

    def _ask(self, command: tuple[str, ...]) -> str:
        try:
            return self._run(command, TIMEOUT_S)
        except Exception:  # a reading is never worth a run
            return ""


# What the commands say -------------------------------------------------------------------------


def parse_gpu_percent(text: str) -> float | None:
    """Return the use of the busiest GPU in `ioreg -c IOAccelerator`, 0 to 100.

    Only inside "PerformanceStatistics": legends name the same keys. Values above 100, up to 2^64,
    occur and mean nothing. AMD says "GPU Activity(%)".
    """
    found = []
    for statistics in _statistics(text):
        for key in ("Device Utilization %", "GPU Activity(%)"):
            value = statistics.get(key)
            if value is not None and value <= 100:
                found.append(float(value))
                break
    return max(found, default=None)


def parse_gpu_resets(text: str) -> int | None:
    """Return how often the GPUs in `ioreg -c IOAccelerator` were reset since the start."""
    counts = [found["recoveryCount"] for found in _statistics(text) if "recoveryCount" in found]
    return sum(counts) if counts and max(counts) < 2**31 else None


def _statistics(text: str) -> list[dict[str, int]]:
    blocks = re.findall(r'"PerformanceStatistics"\s*=\s*\{([^{}]*)', text)
    # At most 20 digits: 2^64 has them, and int() refuses thousands.
    return [
        {key: int(value) for key, value in re.findall(r'"([^"]+)"\s*=\s*([0-9]{1,20})\b', block)}
        for block in blocks
    ]


def parse_low_power(text: str) -> bool | None:
    """Return whether `pmset -g` names Low Power Mode: "lowpowermode 1", or "powermode 1"."""
    found = re.search(r"^\s*(?:low)?powermode\s+([0-9])", text, re.MULTILINE)
    return found[1] == "1" if found else None


def parse_on_battery(text: str) -> bool | None:
    """Return whether `pmset -g batt` says that the battery gives the power."""
    found = re.search(r"drawing from '([^']*)'", text)
    if not found:
        return None
    return True if found[1] == "Battery Power" else False if found[1] == "AC Power" else None


def parse_speed_limit(text: str) -> int | None:
    """Return CPU_Speed_Limit of `pmset -g therm`, in percent; Apple chips do not have it."""
    found = re.search(r"CPU_Speed_Limit\s*=\s*([0-9]{1,3})\b", text)
    return int(found[1]) if found and int(found[1]) <= 100 else None


def parse_pressure(text: str) -> Pressure | None:
    """Return the memory pressure: 1, 2 or 4 in sysctl."""
    found = re.search(r"vm_pressure_level:\s*([0-9]+)", text)
    levels: dict[str, Pressure] = {"1": "normal", "2": "warning", "4": "critical"}
    return levels.get(found[1]) if found else None


def parse_swap(text: str) -> int | None:
    """Return the bytes in use in "vm.swapusage: total = 2048.00M  used = 100.00M ..."."""
    found = re.search(r"\bused = ([0-9]{1,12})([.,][0-9]{1,6})?([BKMGT])", text)
    if not found:
        return None
    factor = 1024 ** "BKMGT".index(found[3])
    return int(float(found[1] + (found[2] or "").replace(",", ".")) * factor)


def thermal_state(value: int | None) -> Thermal | None:
    """Return NSProcessInfo's thermalState (0 to 3) as a word."""
    words: tuple[Thermal, ...] = ("nominal", "fair", "serious", "critical")
    return words[value] if value is not None and 0 <= value < len(words) else None


# What psutil says ------------------------------------------------------------------------------


def _process_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid else None
    except (psutil.Error, OSError, ValueError):
        return None


def _cpu_percent() -> float | None:
    try:
        return float(psutil.cpu_percent())
    except (psutil.Error, OSError):
        return None


def _swap_bytes() -> int | None:
    try:
        return int(psutil.swap_memory().used)
    except (psutil.Error, OSError, RuntimeError):
        return None


def _on_battery() -> bool | None:
    try:
        battery = psutil.sensors_battery()
    except (psutil.Error, OSError, AttributeError, RuntimeError):
        return None
    return None if battery is None or battery.power_plugged is None else not battery.power_plugged
