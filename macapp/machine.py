"""Facts about this computer: chip, cores, memory, system version, GPU and Metal; no torch, no Qt.

On macOS the facts come from `sysctl`, `sw_vers` and `system_profiler`, which need no root.
"""

from __future__ import annotations

import json
import os
import platform as host
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

T = TypeVar("T")
Runner = Callable[[Sequence[str], float], str]
"""Runs a command within so many seconds and returns what it printed: see `run_command`."""

TIMEOUT_S = 2.0

# Absolute paths: an app started by Finder, or inside an environment, may have any PATH.
DISPLAYS_COMMAND = ("/usr/sbin/system_profiler", "SPDisplaysDataType")
# A program built with an old SDK is told "10.16" or "16.0" unless this variable is 0
# (python/cpython#135675); sw_vers would inherit the setting.
VERSION_COMMAND = ("/usr/bin/env", "SYSTEM_VERSION_COMPAT=0", "/usr/bin/sw_vers", "-productVersion")
BUILD_COMMAND = ("/usr/bin/sw_vers", "-buildVersion")
# sysctl prints what it knows and then fails if it did not know one key, hence the "true".
SYSCTL_COMMAND = (
    "/bin/sh",
    "-c",
    "/usr/sbin/sysctl machdep.cpu.brand_string hw.model hw.memsize hw.physicalcpu hw.logicalcpu"
    " hw.optional.arm64 sysctl.proc_translated kern.hv_vmm_present hw.perflevel0.physicalcpu"
    " hw.perflevel1.physicalcpu hw.perflevel2.physicalcpu; true",
)
NVIDIA_COMMAND = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One graphics processor.

    `metal` is "Metal 3" or "Metal 4" (macOS 13 and later), "supported" (earlier), "not supported",
    or "" when the system does not say. `cores` is 0 when unknown, as on all but Apple's chips.
    """

    name: str
    cores: int = 0
    metal: str = ""
    vendor: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What this computer is. Unknown text is "" and an unknown number 0.

    `architecture` is that of this Python: "x86_64" also on an Apple chip when it `is_translated`
    by Rosetta, and then Metal is out of its reach. Neither is Metal to be trusted when
    `is_virtual`. On Linux `system` is the distribution.
    """

    processor: str = ""
    model: str = ""
    architecture: str = ""
    is_apple_silicon: bool = False
    is_translated: bool = False
    is_virtual: bool = False
    physical_cores: int = 0
    logical_cores: int = 0
    performance_cores: int = 0
    efficiency_cores: int = 0
    memory_bytes: int = 0
    system: str = ""
    system_version: str = ""
    system_build: str = ""
    gpus: tuple[Gpu, ...] = ()
    python_version: str = ""


def run_command(arguments: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """Run a command and return its standard output; never raises and never hangs.

    Returns "" if the command is missing, fails, or outlives `timeout_s`; it is then killed
    together with its children.
    """
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        # Not communicate(): a grandchild in a session of its own may hold the pipe for ever.
        if process.stdout:
            process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        return ""
    return str(output, errors="replace") if process.returncode == 0 else ""


def collect(
    run: Runner = run_command, platform: str = sys.platform, architecture: str = ""
) -> Machine:
    """Gather what is known about this computer; takes 2 s at worst and never raises.

    The arguments are for tests: how to run a command, `sys.platform` and `platform.machine()`.
    """
    architecture = architecture or _attempt(host.machine, "")
    if platform == "darwin":
        return _collect_macos(run, architecture)
    cpu: dict[str, str] = {}
    gpus: tuple[Gpu, ...] = ()
    system, version = _attempt(host.system, ""), _attempt(host.release, "")
    if platform == "linux":
        text = _attempt(lambda: Path("/proc/cpuinfo").read_text(errors="replace"), "")
        cpu = parse_key_values(text)
        release: dict[str, str] = _attempt(host.freedesktop_os_release, {})
        system, version = release.get("NAME", "Linux"), release.get("VERSION_ID", "")
        names = _attempt(lambda: run(NVIDIA_COMMAND, TIMEOUT_S), "").splitlines()
        gpus = tuple(Gpu(name=name.strip(), vendor="NVIDIA") for name in names if name.strip())
    return Machine(
        processor=plain_processor(cpu.get("model name") or _attempt(host.processor, "")),
        architecture=architecture,
        is_virtual="hypervisor" in cpu.get("flags", "").split(),
        physical_cores=_core_count(logical=False),
        logical_cores=_core_count(logical=True),
        memory_bytes=memory_in_use()[1],
        system=system,
        system_version=version,
        gpus=gpus,
        python_version=host.python_version(),
    )


def _collect_macos(run: Runner, architecture: str) -> Machine:
    with ThreadPoolExecutor(max_workers=4) as pool:  # side by side: all may hang until the timeout
        answers = pool.submit(run, SYSCTL_COMMAND, TIMEOUT_S)
        displays = pool.submit(_macos_gpus, run)
        version = pool.submit(macos_version, run, "darwin")
        build = pool.submit(run, BUILD_COMMAND, TIMEOUT_S)
    sysctl = parse_key_values(_attempt(answers.result, ""))
    gpus: tuple[Gpu, ...] = _attempt(displays.result, ())
    processor = plain_processor(sysctl.get("machdep.cpu.brand_string", ""))
    if processor in ("", "Apple processor"):  # the latter: macOS 11 on the first M1 (archspec#38)
        names = (gpu.name for gpu in gpus if re.match(r"Apple M[0-9]", gpu.name))
        processor = next(names, processor)
    apple_silicon = (
        processor.startswith("Apple")
        or architecture == "arm64"
        or sysctl.get("hw.optional.arm64") == "1"
    )
    cores = [_number(sysctl.get(f"hw.perflevel{level}.physicalcpu", "")) for level in range(3)]
    return Machine(
        processor=processor,
        model=sysctl.get("hw.model", ""),
        architecture=architecture,
        is_apple_silicon=apple_silicon,
        # The key speaks for the sysctl process; an Intel Python on an Apple chip needs Rosetta.
        is_translated=sysctl.get("sysctl.proc_translated") == "1"
        or (apple_silicon and architecture == "x86_64"),
        is_virtual=sysctl.get("hw.model", "").startswith("VirtualMac")
        or sysctl.get("kern.hv_vmm_present") == "1"
        or any("paravirtual" in gpu.name.casefold() for gpu in gpus),
        physical_cores=_core_count(logical=False, known=sysctl.get("hw.physicalcpu", "")),
        logical_cores=_core_count(logical=True, known=sysctl.get("hw.logicalcpu", "")),
        performance_cores=cores[0],  # level 0 is always the fastest (sysctl.h)
        efficiency_cores=cores[1] + cores[2],
        memory_bytes=_number(sysctl.get("hw.memsize", "")) or memory_in_use()[1],
        system="macOS",
        system_version=_attempt(version.result, ""),
        system_build=_build(_attempt(build.result, "")),
        gpus=gpus,
        python_version=host.python_version(),
    )


def _macos_gpus(run: Runner) -> tuple[Gpu, ...]:
    deadline_s = time.monotonic() + TIMEOUT_S
    gpus = parse_displays(run((*DISPLAYS_COMMAND, "-json"), TIMEOUT_S))
    left_s = deadline_s - time.monotonic()
    if gpus or left_s <= 0:
        return gpus
    return parse_displays_text(run(DISPLAYS_COMMAND, left_s))  # macOS 10.14 knows no -json


def macos_version(run: Runner = run_command, platform: str = sys.platform) -> str:
    """Return the true version of macOS, such as "15.6"; "" when unknown or on another system."""
    if platform != "darwin":
        return ""
    answer = _attempt(lambda: run(VERSION_COMMAND, TIMEOUT_S), "")
    return _true_version(answer) or _true_version(_attempt(lambda: host.mac_ver()[0], ""))


def _true_version(text: str) -> str:
    version = text.strip()
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) or re.match(r"10\.16\b", version):
        return ""  # 10.16 stands for every version from 11 on
    return re.sub(r"^16\b", "26", version)


def _build(text: str) -> str:
    """Read "24G84"; "" for anything else."""
    return text.strip() if re.fullmatch(r"\s*[0-9]{1,3}[A-Z][0-9]{1,6}[a-z]?\s*", text) else ""


def _core_count(*, logical: bool, known: str = "") -> int:
    return _number(known) or _attempt(lambda: psutil.cpu_count(logical=logical), None) or 0


def memory_in_use() -> tuple[int, int]:
    """Return the used and the total memory in bytes, (0, 0) when unknown.

    Used is total minus available: what the system could not give to a program that asked.
    """
    memory = _attempt(psutil.virtual_memory, None)
    return (int(memory.total - memory.available), int(memory.total)) if memory else (0, 0)


def parse_displays(json_text: str) -> tuple[Gpu, ...]:
    """Read `system_profiler SPDisplaysDataType -json` of any macOS; () for anything else."""
    try:
        report = json.loads(json_text)
    except (ValueError, RecursionError):
        return ()
    entries = report.get("SPDisplaysDataType") if isinstance(report, dict) else None
    gpus = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        fields = {key: str(value) for key, value in entry.items() if isinstance(value, str | int)}
        # `_name` may be a raw token: "kHW_AppleM1Item".
        raw_name = re.sub(r"^kHW_Apple(\w+)Item$", r"Apple \1", fields.get("_name", ""))
        metal = (
            fields.get("spdisplays_mtlgpufamilysupport")  # macOS 13 and later
            or fields.get("spdisplays_metalfamily")  # 11 and 12
            or fields.get("spdisplays_metal", "")  # up to 10.15
        )
        vendor = fields.get("spdisplays_vendor", "")
        if name := fields.get("sppci_model") or raw_name:
            gpus.append(_gpu(name, fields.get("sppci_cores", ""), metal, vendor))
    return tuple(gpus)


def parse_displays_text(text: str) -> tuple[Gpu, ...]:
    """Read `system_profiler SPDisplaysDataType`: a heading, an empty line, then "key: value" lines.

    All but the word Metal is translated, so the lone line "Metal 支持: 是" is a GPU without a name.
    """
    gpus = []
    heading = ""
    for paragraph in re.split(r"\n[^\S\n]*\n", text):
        fields = parse_key_values(paragraph.strip())
        metal = next((value for key, value in fields.items() if key.startswith("Metal")), "")
        if metal or "Chipset Model" in fields:
            name = fields.get("Chipset Model") or heading
            cores = fields.get("Total Number of Cores", "")
            gpus.append(_gpu(name, cores, metal, fields.get("Vendor", "")))
        heading = next(iter(fields), "") if len(fields) == 1 else ""
    return tuple(gpus)


def _gpu(name: str, cores: str, metal: str, vendor: str) -> Gpu:
    # "Intel (0x8086)", "sppci_vendor_amd", or no vendor at all beside "AMD Radeon Pro 5500M".
    known = re.search(r"apple|amd|intel|nvidia", f"{vendor} {name}".casefold())
    vendors = {"apple": "Apple", "amd": "AMD", "intel": "Intel", "nvidia": "NVIDIA"}
    return Gpu(
        name=name,
        cores=_number(cores),
        metal=_metal(metal),
        vendor=vendors[known[0]] if known else vendor,
    )


def _metal(text: str) -> str:
    """Read "Metal 3", "spdisplays_metal4", "Supported, feature set …", "是", "不支持"."""
    word = text.casefold().replace(" ", "")
    if re.search(r"notsupported|unsupported|不支持|^no$|^否$", word):
        return "not supported"
    generation = re.search(r"metal([0-9]+)", word)
    return f"Metal {generation[1]}" if generation else "supported" if word else ""


def parse_key_values(text: str) -> dict[str, str]:
    """Read the "key: value" lines of sysctl, /proc/cpuinfo or system_profiler; the first counts."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.replace("：", ":").partition(":")  # the wide colon: Chinese
        fields.setdefault(key.strip(), value.strip())
    return fields


def plain_processor(brand: str) -> str:
    """Shorten "Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz" to "Intel Core i9-9880H"."""
    words = re.sub(r"\((R|TM)\)|\bCPU\b|\b[0-9]+-Core Processor|\bProcessor\b", " ", brand)
    return " ".join(words.partition("@")[0].split())


def _number(text: str) -> int:
    # At most 18 digits, since int() refuses thousands of them.
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _attempt(call: Callable[[], T], default: T) -> T:
    """Call, or the default: no fact about the computer is worth an app that does not start."""
    try:
        return call()
    except Exception:
        return default
