"""What the system says while a job runs: recorded outputs, anything else, and a Mac that hangs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp import foundation, readings
from macapp.readings import Power, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# ruff: noqa: E501 - what ioreg prints, as it prints it
# ioreg -r -d 1 -w 0 -c IOAccelerator on an M4-generation Mac; the legend is shortened.
IOREG = """+-o AGXAcceleratorG17X  <class AGXAcceleratorG17X, id 0x1, registered, matched, active, busy 0 (1 ms), retain 9>
  | |   "IOReportLegend" = ({"IOReportChannels"=((1,2,"Device Utilization %"=99))})
  | |   "PerformanceStatistics" = {"In use system memory (driver)"=0,"Alloc system memory"=52967440384,"Tiler Utilization %"=10,"recoveryCount"=0,"Device Utilization %"=16,"In use system memory"=2363801600}
"""
# Synthetic: an Intel Mac with two accelerators, one of which says nonsense, and a reset AMD GPU.
TWO_GPUS = """+-o IntelAccelerator  <class IntelAccelerator, id 0x2>
    "PerformanceStatistics" = {"Device Utilization %"=18446744073709551615,"recoveryCount"=0}
+-o AMDRadeonX6000_AMDNavi23GraphicsAccelerator  <class AMDRadeonX6000, id 0x3>
    "PerformanceStatistics" = {"vramUsedBytes"=1073741824,"GPU Activity(%)"=37,"recoveryCount"=2}
"""
PMSET = """System-wide power settings:
 SleepDisabled\t\t1
Currently in use:
 standby              1
 Sleep On Power Button 1
 hibernatefile        /var/vm/sleepimage
 powernap             1
 sleep                1 (sleep prevented by bluetoothd, powerd, sharingd)
 displaysleep         10 (display sleep prevented by Safari)
 lowpowermode         {low}
 womp                 1
"""
ON_MAINS = """Now drawing from 'AC Power'
 -InternalBattery-0 (id=1234567)\t85%; charging; 1:02 remaining present: true
"""
ON_BATTERY = ON_MAINS.replace("AC", "Battery")
THERM_APPLE = """Note: No thermal warning level has been recorded
Note: No performance warning level has been recorded
Note: No CPU power status has been recorded
"""
THERM_INTEL = """2024-01-01 10:00:00 +0000 CPU Power notify
\tCPU_Scheduler_Limit \t= 40
\tCPU_Available_CPUs \t= 8
\tCPU_Speed_Limit \t= 28
"""
SYSCTL = """kern.memorystatus_vm_pressure_level: 2
vm.swapusage: total = 2048.00M  used = 100.00M  free = 1948.00M  (encrypted)
"""


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (readings.parse_gpu_percent, IOREG, 16.0),
        (readings.parse_gpu_percent, TWO_GPUS, 37.0),
        (readings.parse_gpu_percent, TWO_GPUS.split("+-o AMD")[0], None),
        (readings.parse_gpu_percent, '"Device Utilization %"=5', None),
        (readings.parse_gpu_resets, IOREG, 0),
        (readings.parse_gpu_resets, TWO_GPUS, 2),
        (readings.parse_gpu_resets, '"PerformanceStatistics" = {"x"=1}', None),
        (readings.parse_low_power, PMSET.format(low=0), False),
        (readings.parse_low_power, PMSET.format(low="1 (imposed)"), True),
        (readings.parse_low_power, PMSET.replace("lowpowermode", "powermode").format(low=1), True),
        (readings.parse_low_power, PMSET.replace("lowpowermode", "powermode").format(low=2), False),
        (readings.parse_low_power, PMSET.replace("lowpowermode", "womp"), None),
        (readings.parse_on_battery, ON_MAINS, False),
        (readings.parse_on_battery, ON_BATTERY, True),
        (readings.parse_on_battery, "Now drawing from 'UPS Power'", None),
        (readings.parse_speed_limit, THERM_INTEL, 28),
        (readings.parse_speed_limit, THERM_APPLE, None),
        (readings.parse_pressure, SYSCTL, "warning"),
        (readings.parse_pressure, SYSCTL.replace("level: 2", "level: 4"), "critical"),
        (readings.parse_pressure, SYSCTL.replace("level: 2", "level: 3"), None),
        (readings.parse_swap, SYSCTL, 100 * 2**20),
        (readings.parse_swap, "vm.swapusage: total = 0.00M  used = 1,50G  free = 0,00M", 3 * 2**29),
        (readings.parse_swap, "", None),
    ],
)
def test_recorded_outputs(parse: Callable[[str], object], text: str, expected: object) -> None:
    assert parse(text) == expected


PARSERS: tuple[Callable[[str], Any], ...] = (
    readings.parse_gpu_percent,
    readings.parse_gpu_resets,
    readings.parse_low_power,
    readings.parse_on_battery,
    readings.parse_speed_limit,
    readings.parse_pressure,
    readings.parse_swap,
)
SAMPLES = (IOREG, TWO_GPUS, PMSET, ON_MAINS, THERM_INTEL, THERM_APPLE, SYSCTL)


@given(st.binary() | st.text().map(str.encode))
def test_no_parser_ever_raises(printed: bytes) -> None:
    for parse in PARSERS:
        parse(printed.decode(errors="replace"))


@given(st.sampled_from(SAMPLES), st.integers(0, 700), st.integers(0, 700), st.text(max_size=30))
def test_a_sample_cut_or_changed_anywhere_raises_nothing(
    sample: str, start: int, end: int, inserted: str
) -> None:
    for text in (sample[:end], sample[start:], sample[:start] + inserted + sample[end:]):
        for parse in PARSERS:
            parse(text)
        percent = readings.parse_gpu_percent(text)
        assert percent is None or 0 <= percent <= 100


@given(st.integers() | st.none())
def test_thermal_state_is_a_word_or_unknown(value: int | None) -> None:
    words = {0: "nominal", 1: "fair", 2: "serious", 3: "critical"}
    assert readings.thermal_state(value) == (words.get(value) if value is not None else None)


class Recorded:
    """A Mac: answers what commands print."""

    def __init__(self, **answers: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._answers = {
            readings.GPU_COMMAND: answers.get("gpu", IOREG),
            readings.POWER_COMMAND: answers.get("power", PMSET.format(low=1)),
            readings.SOURCE_COMMAND: answers.get("source", ON_BATTERY),
            readings.THERMAL_COMMAND: answers.get("therm", THERM_APPLE),
            readings.MEMORY_COMMAND: answers.get("memory", SYSCTL),
        }

    def __call__(self, arguments: Sequence[str], timeout_s: float) -> str:
        assert 0 < timeout_s <= 1
        self.asked.append(tuple(arguments))
        return self._answers[tuple(arguments)]


def test_a_mac_is_read() -> None:
    mac = Recorded()
    reader = Reader(mac, "darwin")
    found = reader.read(os.getpid())
    assert (found.gpu_percent, found.gpu_resets) == (16.0, 0)
    assert (found.pressure, found.swap_bytes) == ("warning", 100 * 2**20)
    assert found.power == Power(on_battery=True, low_power=True)
    assert found.process_bytes is not None
    assert found.process_bytes > 2**20
    assert found.cpu_percent is not None
    reader.read()
    assert mac.asked.count(readings.GPU_COMMAND) == 2
    assert mac.asked.count(readings.POWER_COMMAND) == 1  # it changes seldom


def test_nsprocessinfo_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    class Info:
        def call(self, selector: str) -> int:
            # A BOOL of false, with dirt in the rest of the register.
            return {"thermalState": 2, "isLowPowerModeEnabled": 0x1200}[selector]

    monkeypatch.setattr(foundation, "process_info", Info)
    power = Reader(Recorded(), "darwin").read().power
    assert (power.thermal, power.low_power) == ("serious", False)


def test_what_a_mac_does_not_tell_is_unknown() -> None:
    def fails(_arguments: Sequence[str], _timeout_s: float) -> str:
        raise OSError("no such program")

    for run in (Recorded(gpu="", power="", source="", therm="", memory=""), fails):
        found = Reader(run, "darwin").read(engine_pid=2**22 + 1)
        assert (found.gpu_percent, found.gpu_resets, found.pressure) == (None, None, None)
        assert (found.swap_bytes, found.process_bytes) == (None, None)
        assert found.power == Power()


def test_another_system_is_asked_nothing_of_a_mac() -> None:
    mac = Recorded()
    found = Reader(mac, "linux").read(os.getpid())
    assert mac.asked == []
    assert found.process_bytes
    assert found.gpu_percent is None
    assert found.power.low_power is None


def test_commands_that_are_not_there_take_no_time() -> None:
    started = time.monotonic()
    Reader(platform="darwin").read()  # here none of the commands exists
    assert time.monotonic() - started < 5
