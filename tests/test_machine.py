"""Machines that nobody here has, from what their commands print."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp import machine
from macapp.machine import Gpu, Machine
from tests.processes import still_running

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES = Path(__file__).parent / "machine_samples"

M1_PRO_SYSCTL = """machdep.cpu.brand_string: Apple M1 Pro
hw.model: MacBookPro18,1
hw.memsize: 17179869184
hw.physicalcpu: 10
hw.logicalcpu: 10
hw.optional.arm64: 1
sysctl.proc_translated: 0
kern.hv_vmm_present: 0
hw.perflevel0.physicalcpu: 8
hw.perflevel1.physicalcpu: 2
"""
M4_SYSCTL = """machdep.cpu.brand_string: Apple M4
hw.model: Mac16,1
hw.memsize: 25769803776
hw.physicalcpu: 10
hw.logicalcpu: 10
hw.optional.arm64: 1
sysctl.proc_translated: 0
kern.hv_vmm_present: 0
hw.perflevel0.physicalcpu: 4
hw.perflevel1.physicalcpu: 6
"""
# No perflevel, no proc_translated, no arm64 on Intel: sysctl prints nothing for unknown keys.
INTEL_SYSCTL = """machdep.cpu.brand_string: Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz
hw.model: MacBookPro16,1
hw.memsize: 17179869184
hw.physicalcpu: 8
hw.logicalcpu: 16
kern.hv_vmm_present: 0
"""
VM_SYSCTL = """machdep.cpu.brand_string: Apple processor
hw.model: VirtualMac2,1
hw.memsize: 7516192768
hw.physicalcpu: 3
hw.logicalcpu: 3
hw.optional.arm64: 1
sysctl.proc_translated: 0
kern.hv_vmm_present: 1
hw.perflevel0.physicalcpu: 3
"""
FIRST_M1_SYSCTL = "machdep.cpu.brand_string: Apple processor\nmachdep.cpu.core_count: 8\n"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


class Recorded:
    """Runs no command: answers with what one printed, or with nothing, as one that failed."""

    def __init__(
        self,
        sysctl: str = "",
        version: str = "",
        displays_json: str = "",
        displays_text: str = "",
        build: str = "",
    ) -> None:
        self.asked: list[Sequence[str]] = []
        self._answers = {
            machine.SYSCTL_COMMAND: sysctl,
            machine.VERSION_COMMAND: version,
            machine.BUILD_COMMAND: build,
            (*machine.DISPLAYS_COMMAND, "-json"): displays_json,
            machine.DISPLAYS_COMMAND: displays_text,
        }

    def __call__(self, arguments: Sequence[str], timeout_s: float) -> str:
        assert 0 < timeout_s <= machine.TIMEOUT_S
        self.asked.append(arguments)
        return self._answers[tuple(arguments)]

    def collect(self, architecture: str = "arm64") -> Machine:
        return machine.collect(run=self, platform="darwin", architecture=architecture)


# One GPU ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "displays_m1_macos13.json",
            [Gpu(name="Apple M1", cores=7, metal="Metal 3", vendor="Apple")],
        ),
        (
            "displays_m4_macos26.json",
            [Gpu(name="Apple M4", cores=10, metal="Metal 4", vendor="Apple")],
        ),
        ("displays_amd.json", [Gpu(name="AMD Radeon Pro 5500M", vendor="AMD")]),
    ],
)
def test_recorded_json(file: str, expected: list[Gpu]) -> None:
    assert machine.parse_displays(sample(file)) == tuple(expected)


@pytest.mark.parametrize(
    ("key", "value", "metal"),
    [
        ("spdisplays_mtlgpufamilysupport", "spdisplays_metal3", "Metal 3"),
        ("spdisplays_metalfamily", "spdisplays_mtlgpufamilyapple7", "supported"),
        ("spdisplays_metalfamily", "spdisplays_mtlgpufamilymac2", "supported"),
        ("spdisplays_metal", "spdisplays_supported", "supported"),
        ("spdisplays_metal", "spdisplays_metalfeaturesetfamily21", "supported"),
        ("spdisplays_metal", "spdisplays_notsupported", "not supported"),
        ("something_else", "spdisplays_metal3", ""),
    ],
)
def test_the_metal_key_of_each_macos(key: str, value: str, metal: str) -> None:
    report = {"SPDisplaysDataType": [{"sppci_model": "A GPU", key: value}]}
    assert machine.parse_displays(json.dumps(report)) == (Gpu(name="A GPU", metal=metal),)


def test_a_raw_name_is_spelled_out() -> None:
    report = {"SPDisplaysDataType": [{"_name": "kHW_AppleM1ProItem"}]}
    (gpu,) = machine.parse_displays(json.dumps(report))
    assert gpu.name == "Apple M1Pro"


def test_the_number_of_cores_may_be_a_number() -> None:
    report = {"SPDisplaysDataType": [{"sppci_model": "Apple M9", "sppci_cores": 12}]}
    assert machine.parse_displays(json.dumps(report))[0].cores == 12


@pytest.mark.parametrize(
    "text",
    [
        "",  # a virtual machine without a screen
        '{"SPDisplaysDataType" : [ ] }',
        "[]",
        "null",
        '{"SPDisplaysDataType": 5}',
        '{"SPDisplaysDataType": [7, null, "x", {}]}',
        '{"SPDisplaysDataType": [',
        "[" * 100_000,
    ],
)
def test_json_without_a_gpu(text: str) -> None:
    assert machine.parse_displays(text) == ()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "displays_m1pro_macos12.txt",
            [Gpu(name="Apple M1 Pro", cores=16, metal="supported", vendor="Apple")],
        ),
        (
            "displays_m2pro_macos13.txt",
            [Gpu(name="Apple M2 Pro", cores=16, metal="Metal 3", vendor="Apple")],
        ),
        (
            "displays_macbookpro2016.txt",
            [
                Gpu(name="Intel HD Graphics 530", metal="supported", vendor="Intel"),
                Gpu(name="AMD Radeon Pro 450", metal="supported", vendor="AMD"),
            ],
        ),
        (
            "displays_imacpro2017.txt",
            [Gpu(name="Radeon Pro Vega 64", metal="supported", vendor="AMD")],
        ),
        ("displays_no_metal.txt", [Gpu(name="Intel HD Graphics 4000", vendor="Intel")]),
        (
            "displays_virtual.txt",
            [Gpu(name="Apple Paravirtual device", metal="Metal 3", vendor="Apple")],
        ),
    ],
)
def test_recorded_text(file: str, expected: list[Gpu]) -> None:
    assert machine.parse_displays_text(sample(file)) == tuple(expected)


@pytest.mark.parametrize(
    ("line", "metal"),
    [
        ("Metal 支持: 是", "supported"),
        ("Metal 支持：Metal 3", "Metal 3"),
        ("Metal 支持: 不支持", "not supported"),
        ("Metal: Supported", "supported"),
        ("Metal: Not Supported", "not supported"),
        ("Metal Family: Supported, Metal GPUFamily macOS 2", "supported"),
        ("Metal Support: Metal 4", "Metal 4"),
    ],
)
def test_text_in_another_language(line: str, metal: str) -> None:
    text = f"图形卡/显示器:\n\n    Apple M1:\n\n      芯片组型号: Apple M1\n      {line}\n"
    (gpu,) = machine.parse_displays_text(text)
    assert gpu.metal == metal
    assert gpu.name == "Apple M1"


# Whole machines ---------------------------------------------------------------------------------


def test_an_m1_pro() -> None:
    found = Recorded(M1_PRO_SYSCTL, "15.6\n", sample("displays_m1_macos13.json")).collect()
    assert found.processor == "Apple M1 Pro"
    assert found.model == "MacBookPro18,1"
    assert (found.system, found.system_version) == ("macOS", "15.6")
    assert found.is_apple_silicon
    assert not found.is_translated
    assert not found.is_virtual
    assert (found.physical_cores, found.performance_cores, found.efficiency_cores) == (10, 8, 2)
    assert found.memory_bytes == 16 * 2**30
    assert found.gpus[0].metal == "Metal 3"


def test_an_m4_on_macos_26_whose_version_is_told_as_16() -> None:
    recorded = Recorded(M4_SYSCTL, "16.0\n", sample("displays_m4_macos26.json"))
    found = recorded.collect()
    assert found.system_version == "26.0"
    assert found.gpus == (Gpu(name="Apple M4", cores=10, metal="Metal 4", vendor="Apple"),)
    # With JSON there, the slower and translated text is not asked for.
    assert machine.DISPLAYS_COMMAND not in recorded.asked


def test_an_intel_mac_with_two_gpus_whose_system_knows_no_json() -> None:
    text = sample("displays_macbookpro2016.txt")
    found = Recorded(INTEL_SYSCTL, "10.15.7\n", "", text).collect("x86_64")
    assert found.processor == "Intel Core i9-9880H"
    assert not found.is_apple_silicon
    assert not found.is_translated
    assert (found.physical_cores, found.logical_cores) == (8, 16)
    assert (found.performance_cores, found.efficiency_cores) == (0, 0)
    assert [gpu.vendor for gpu in found.gpus] == ["Intel", "AMD"]
    assert found.system_version == "10.15.7"


@pytest.mark.parametrize("translated", ["0", "1"])
def test_python_under_rosetta(translated: str) -> None:
    """The key speaks for the sysctl process, which may run natively; the chip tells, too."""
    sysctl = M1_PRO_SYSCTL.replace("proc_translated: 0", f"proc_translated: {translated}")
    found = Recorded(sysctl, "14.5\n", sample("displays_m1_macos13.json")).collect("x86_64")
    assert found.is_apple_silicon
    assert found.is_translated
    assert found.architecture == "x86_64"


def test_a_virtual_machine() -> None:
    found = Recorded(VM_SYSCTL, "14.7\n", "", sample("displays_virtual.txt")).collect()
    assert found.is_virtual
    assert found.processor == "Apple processor"
    assert found.gpus[0].cores == 0


@pytest.mark.parametrize(
    ("sysctl", "displays"),
    [
        ("hw.model: VirtualMac2,1", ""),
        ("kern.hv_vmm_present: 1", ""),
        ("", "displays_virtual.txt"),
    ],
)
def test_each_sign_of_a_virtual_machine_is_enough(sysctl: str, displays: str) -> None:
    text = sample(displays) if displays else ""
    assert Recorded(sysctl, "14.7", "", text).collect().is_virtual


def test_the_first_m1_is_named_by_its_gpu() -> None:
    found = Recorded(FIRST_M1_SYSCTL, "11.0", sample("displays_m1_macos13.json")).collect()
    assert found.processor == "Apple M1"


def test_a_third_level_of_cores_counts_as_efficient() -> None:
    sysctl = M4_SYSCTL + "hw.perflevel2.physicalcpu: 2\n"
    assert Recorded(sysctl).collect().efficiency_cores == 8


def test_all_commands_failing_leaves_what_python_knows() -> None:
    found = Recorded().collect()
    assert found.is_apple_silicon  # this Python was built for it
    assert found.gpus == ()
    assert found.processor == ""
    assert found.memory_bytes == psutil.virtual_memory().total
    assert found.logical_cores == psutil.cpu_count()


def test_a_runner_that_raises_leaves_the_same() -> None:
    def raises(_arguments: Sequence[str], _timeout_s: float) -> str:
        raise RuntimeError("no command today")

    assert machine.collect(raises, "darwin", "arm64") == Recorded().collect()


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("15.6\n", "15.6"),
        ("14.7.1", "14.7.1"),
        ("26.0", "26.0"),
        ("26.1.2", "26.1.2"),
        ("16.0", "26.0"),
        ("10.15.7", "10.15.7"),
        ("11.0", "11.0"),
    ],
)
def test_versions_of_macos(answer: str, version: str) -> None:
    assert machine.macos_version(lambda _command, _timeout: answer, "darwin") == version


@pytest.mark.parametrize(
    ("answer", "build"),
    [
        ("24G84\n", "24G84"),
        ("16G29", "16G29"),
        ("25A5279m\n", "25A5279m"),  # a beta
        ("", ""),
        ("15.6", ""),
        ("sw_vers: command not found", ""),
        ("24G84 and more", ""),
    ],
)
def test_builds_of_macos(answer: str, build: str) -> None:
    assert Recorded(build=answer).collect().system_build == build


@pytest.mark.parametrize("answer", ["10.16", "10.16.0", "", "garbage", "15.6 beta"])
def test_a_version_that_is_no_answer_gives_way_to_pythons(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for told, version in (("13.6", "13.6"), ("10.16", ""), ("16.2", "26.2"), ("", "")):
        monkeypatch.setattr("platform.mac_ver", lambda told=told: (told, ("", "", ""), "arm64"))
        assert machine.macos_version(lambda _command, _timeout: answer, "darwin") == version


def test_other_systems_have_no_macos_version() -> None:
    assert machine.macos_version(platform="linux") == ""


@pytest.mark.parametrize(
    ("brand", "name"),
    [
        ("Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz", "Intel Core i9-9880H"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 9 7950X"),
        ("Apple M3 Max", "Apple M3 Max"),
        ("", ""),
    ],
)
def test_processor_names(brand: str, name: str) -> None:
    assert machine.plain_processor(brand) == name


def test_linux_asks_for_nvidia_gpus() -> None:
    def nvidia(arguments: Sequence[str], _timeout_s: float) -> str:
        assert arguments == machine.NVIDIA_COMMAND
        return "NVIDIA H200\nNVIDIA H200\n\n"

    found = machine.collect(nvidia, "linux")
    assert found.gpus == 2 * (Gpu(name="NVIDIA H200", vendor="NVIDIA"),)


# Real commands ----------------------------------------------------------------------------------


def test_a_command_is_run() -> None:
    assert machine.run_command([sys.executable, "-c", "print('是')"]) == "是\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    code = "import sys; sys.stdout.buffer.write(b'Metal \\xff\\xfe: 3')"
    assert machine.run_command([sys.executable, "-c", code]) == "Metal \ufffd\ufffd: 3"


@pytest.mark.parametrize(
    "command", [["/no/such/command"], ["false"], ["a\0b"], [str(Path(__file__).parent)]]
)
def test_a_command_that_fails_has_no_answer(command: list[str]) -> None:
    assert machine.run_command(command) == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize("script", ["sleep 61 & sleep 61", "sleep 61 & wait", "exec sleep 61"])
def test_a_command_that_hangs_is_ended_with_its_children(script: str) -> None:
    started = time.monotonic()
    assert machine.run_command(["sh", "-c", f"echo begun; {script}"], 0.3) == ""
    assert time.monotonic() - started < 5
    left = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "61"]]
    assert still_running(left, 5) == []


def test_this_machine() -> None:
    found = machine.collect()
    assert found.physical_cores >= 1
    assert found.logical_cores >= found.physical_cores
    assert found.memory_bytes > 2**28
    assert found.system
    assert found.python_version == ".".join(map(str, sys.version_info[:3]))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Machine) == found


def test_memory_in_use() -> None:
    used, total = machine.memory_in_use()
    assert 0 < used < total == psutil.virtual_memory().total


def test_memory_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> object:
        raise OSError("no /proc here")

    monkeypatch.setattr(psutil, "virtual_memory", fails)
    assert machine.memory_in_use() == (0, 0)
    assert Recorded(INTEL_SYSCTL.replace("hw.memsize", "x")).collect().memory_bytes == 0


# Anything at all --------------------------------------------------------------------------------

ANY_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.dictionaries(
    st.sampled_from(
        ["_name", "sppci_model", "sppci_cores", "spdisplays_vendor", "spdisplays_metal"]
    ),
    ANY_JSON,
)


@given(st.one_of(ANY_JSON, st.builds(lambda x: {"SPDisplaysDataType": x}, st.lists(ENTRY))))
def test_any_json_is_read(value: object) -> None:
    for gpu in machine.parse_displays(json.dumps(value)):
        assert gpu.name
        assert gpu.cores >= 0
        msgspec.json.encode(gpu)


LINE = st.tuples(
    st.sampled_from(["Chipset Model", "Metal", "Metal Support", "Vendor", "", "芯片组型号"]),
    st.sampled_from([": ", ":", "：", ""]),
    st.text(max_size=20),
).map("".join)


@given(st.one_of(st.text(), st.lists(LINE | st.just("")).map("\n".join)))
def test_any_text_is_read(text: str) -> None:
    machine.parse_displays(text)
    machine.parse_key_values(text)
    for gpu in machine.parse_displays_text(text):
        assert gpu.metal in ("", "supported", "not supported") or gpu.metal.startswith("Metal ")
    assert "@" not in machine.plain_processor(text)
    version = machine.macos_version(lambda _command, _timeout: text, "darwin")
    assert not version.startswith("10.16")


@given(st.lists(st.text(), min_size=5, max_size=5), st.sampled_from(["arm64", "x86_64", "?"]))
def test_any_answers_make_a_machine(answers: list[str], architecture: str) -> None:
    found = Recorded(*answers).collect(architecture)
    assert found.architecture == architecture
    msgspec.json.encode(found)
