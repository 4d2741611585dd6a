from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp import machine
from macapp.engine import diagnosis, environment, smoke_test
from macapp.engine.devices import Cpu
from macapp.engine.diagnosis import DeviceSurvey, MpsFacts, judge_mps
from macapp.engine.smoke_test import Memory, SmokeResult
from macapp.messages import UserError
from tests.engine.fake_mps import FakeMps

if TYPE_CHECKING:
    from pathlib import Path

    from macapp.protocol import DeviceStatus, Verdict

M1 = machine.Machine(
    processor="Apple M1",
    model="Macmini9,1",
    architecture="arm64",
    is_apple_silicon=True,
    system="macOS",
    system_version="15.6",
    system_build="24G84",
    gpus=(machine.Gpu(name="Apple M1", cores=8, metal="Metal 3"),),
)
INTEL = machine.Machine(
    processor="Intel Core i9-9880H", architecture="x86_64", system="macOS", system_version="13.6"
)
PASSED = SmokeResult("passed")


def facts(computer: machine.Machine = M1, torch: str = "2.14.1", **changes: Any) -> MpsFacts:
    changes = {"is_built": True, "is_available": True, "system": "Darwin", **changes}
    return MpsFacts(torch_version=torch, computer=computer, **changes)


def on(version: str, computer: machine.Machine = M1) -> machine.Machine:
    return msgspec.structs.replace(computer, system_version=version)


@pytest.mark.parametrize(
    ("known", "verdict", "words"),
    [
        (facts(system="Linux", is_built=False), "not_here", "only on a Mac"),
        (facts(is_built=False, is_available=False), "not_built", "was built without Metal"),
        # The table of versions, whatever is_available() says.
        (facts(on("12.7"), "2.5.1", is_available=False), "macos_too_old", "PyTorch 2.4.1"),
        (facts(on("12.7"), "2.5.1"), "macos_too_old", "needs 13 or later"),
        (facts(on("13.6"), "2.9.1", is_available=False), "macos_too_old", "PyTorch 2.8.0"),
        (facts(on("14.7"), "2.15.0", is_available=False), "macos_too_old", "PyTorch 2.14.1"),
        (facts(on("14.7"), "2.15.0", is_available=False), "macos_too_old", "needs 15 or later"),
        (facts(on("12.2"), "2.4.1", is_available=False), "macos_too_old", "No PyTorch works"),
        (facts(on("12.2"), "2.4.1", is_available=False), "macos_too_old", "needs 12.3 or later"),
        (facts(on("11.7", INTEL), "2.2.2", is_available=False), "macos_too_old", "12.3"),
        (facts(on("26.1"), "2.15.0"), "ready", "Ready"),
        (facts(on("27.0"), "2.16.0"), "ready", "Ready"),
        (facts(on("12.6"), "2.4.1"), "ready", "Ready"),
        (facts(on("13.0"), "2.8.0"), "ready", "Ready"),
        (facts(INTEL, "2.2.2", is_available=False), "intel", "Intel Mac"),
        (facts(INTEL, "2.2.2"), "ready", "Ready"),  # with an AMD GPU
        (facts(msgspec.structs.replace(M1, is_translated=True)), "rosetta", "made for Apple chips"),
        (facts(msgspec.structs.replace(M1, is_virtual=True)), "virtual_machine", "on the Mac"),
        (facts(is_available=False), "no_access", "double click"),
        # macOS 26.3.1 on an M2 Max, which torch 2.14 calls too old (pytorch#177819).
        (facts(on("26.3.1"), "2.14.1", is_available=False), "no_access", "ssh"),
        (facts(on(""), "2.14.1", is_available=False), "no_access", "sandbox"),
    ],
)
def test_each_cause_has_its_verdict(known: MpsFacts, verdict: Verdict, words: str) -> None:
    status = judge_mps(known, PASSED)
    assert status.verdict == verdict
    assert words in f"{status.reason} {status.remedy}"
    assert (status.remedy is not None) == (verdict not in ("ready", "not_here"))
    assert status.ready == (verdict == "ready")
    if verdict != "not_here":
        assert f"torch {known.torch_version}" in status.details
    assert "PYTORCH_" not in f"{status.reason} {status.remedy}"


def test_the_metal_line_is_among_the_facts() -> None:
    assert "Apple M1: Metal: Metal 3" in facts().details()
    assert "24G84" in facts().details()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (SmokeResult("wrong", "assignment", "x"), "computes wrong numbers: writing into a part"),
        (SmokeResult("error", "memory", "x"), "a first small task failed"),
        (SmokeResult("crash", "training", "x"), "one training step made it crash"),
        (SmokeResult("hang", "argmax", "x"), "finding the largest number never ended"),
        (SmokeResult("not_run", "", "x"), "could not be tested"),
    ],
)
def test_a_failed_smoke_test_says_what_failed(result: SmokeResult, words: str) -> None:
    status = judge_mps(facts(), result)
    assert status.verdict == "failed"
    assert words in str(status.reason)
    assert "Test again" in str(status.remedy)


def test_without_a_smoke_test_nothing_is_claimed() -> None:
    assert judge_mps(facts()).verdict == "checking"
    assert not judge_mps(facts()).ready


@given(st.text(), st.text())
def test_any_versions_are_judged(macos: str, torch: str) -> None:
    judge_mps(facts(on(macos), torch), PASSED)
    judge_mps(facts(on(macos, INTEL), torch, is_available=False))


@pytest.mark.parametrize(
    ("text", "version"),
    [("15.6.1", (15, 6, 1)), ("2.5.0a0", (2, 5, 0)), ("", ()), ("x", ()), ("26", (26,))],
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert diagnosis.version(text) == version


# The smoke test --------------------------------------------------------------------------------


def child(case: str) -> list[str]:
    return [sys.executable, "-m", "tests.simulated_mps", case]


@pytest.mark.parametrize(
    ("case", "outcome", "stage", "details"),
    [
        ("none", "passed", "", ""),
        ("memory", "error", "memory", "Tried to allocate 0 bytes"),
        ("training", "wrong", "training", "instead of"),
        ("assignment", "wrong", "assignment", "x[1] = 1; x[2] = 3: [0.0, 3.0, 3.0]"),
        ("argmax", "wrong", "argmax", "argmax"),
        ("crash", "crash", "training", "SIGABRT"),
        ("hang", "hang", "training", ""),
        ("garbage", "wrong", "argmax", "command buffer exited with error status"),
    ],
)
def test_the_smoke_test_sees(case: str, outcome: str, stage: str, details: str) -> None:
    result = smoke_test.run(child(case), timeout_s=4)
    assert (result.outcome, result.stage) == (outcome, stage)
    assert details in result.details


def test_the_smoke_test_runs_from_our_own_command_line() -> None:
    assert smoke_test.run(smoke_test.command("cpu")).passed


def test_a_child_that_cannot_start_is_no_verdict_on_the_gpu(tmp_path: Path) -> None:
    assert smoke_test.run([str(tmp_path / "nothing")]).outcome == "not_run"


def test_a_child_that_never_loads_ends_in_time() -> None:
    started = time.monotonic()
    result = smoke_test.run(["sleep", "60"], timeout_s=0.2, loading_timeout_s=0.5)
    assert (result.outcome, result.stage) == ("hang", "loading")
    assert time.monotonic() - started < 10


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    """It sees the end of its standard input, which its parent holds."""
    reading, writing = os.pipe()
    import subprocess

    process = subprocess.Popen(child("hang"), stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    assert process.stdout is not None
    while process.stdout.readline() != b"training\n":
        pass
    os.close(writing)
    assert process.wait(5) == 1
    process.stdout.close()


def test_results_are_remembered_for_one_system(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "new" / "folder")
    assert memory.recall("a") is None
    memory.keep("a", PASSED)
    assert Memory(tmp_path / "new" / "folder").recall("a") == PASSED
    assert memory.recall("b") is None
    for damaged in (b"", b"{", b"[]", b'{"a": 1}', b"\xff"):
        (tmp_path / "new" / "folder" / "smoke-test.json").write_bytes(damaged)
        assert memory.recall("a") is None
    (tmp_path / "file").write_text("")
    Memory(tmp_path / "file").keep("a", PASSED)  # cannot be written: forgotten
    assert Memory(None).recall("a") is None


def test_the_key_changes_with_what_matters() -> None:
    keys = {
        facts().smoke_test_key(),
        facts(torch="2.15.0").smoke_test_key(),
        facts(on("15.7")).smoke_test_key(),
        facts(msgspec.structs.replace(M1, system_build="24G90")).smoke_test_key(),
        facts(msgspec.structs.replace(M1, model="Mac15,3")).smoke_test_key(),
    }
    assert len(keys) == 5


# The survey ------------------------------------------------------------------------------------


def test_the_survey_of_this_computer_knows_every_kind() -> None:
    found = {status.kind: status for status in DeviceSurvey().complete()}
    assert set(found) == {"mps", "cuda", "cpu"}
    assert found["cpu"].ready
    for status in found.values():
        assert str(status.reason).endswith(".")


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch, metal: object) -> list[SmokeResult]:
    """This computer as a Mac; the results that its smoke tests will have, last one first."""
    del metal
    results = [PASSED]
    monkeypatch.setattr(diagnosis, "mps_facts", facts)
    monkeypatch.setattr(smoke_test, "run", lambda _command: results.pop())
    monkeypatch.setattr(diagnosis, "DEVICES", {"mps": FakeMps, "cpu": Cpu})
    return results


def test_the_smoke_test_runs_once_and_again_on_demand(
    mac: list[SmokeResult], tmp_path: Path
) -> None:
    survey = DeviceSurvey(tmp_path)
    assert not survey.is_complete
    assert _verdict(survey.statuses) == "checking"
    assert _verdict(survey.complete()) == "ready"
    assert mac == []
    assert _verdict(DeviceSurvey(tmp_path).statuses) == "ready"  # remembered
    mac.append(SmokeResult("crash", "training", "SIGABRT"))
    assert _verdict(survey.complete()) == "ready"
    assert _verdict(survey.complete(again=True)) == "failed"
    assert _verdict(DeviceSurvey(tmp_path).statuses) == "failed"


def test_automatic_takes_metal_only_if_it_passed(mac: list[SmokeResult]) -> None:
    assert DeviceSurvey().choose("auto").kind == "mps"
    mac.append(SmokeResult("hang", "training"))
    survey = DeviceSurvey()
    assert survey.choose("auto").kind == "cpu"
    with pytest.raises(UserError) as caught:
        survey.choose("mps")
    assert "never ended" in str(caught.value.failure.what)
    assert "Test again" in str(caught.value.failure.remedy)


def test_a_trial_that_could_not_be_made_is_not_remembered(
    mac: list[SmokeResult], tmp_path: Path
) -> None:
    mac[:] = [SmokeResult("not_run")]
    assert _verdict(DeviceSurvey(tmp_path).complete()) == "failed"
    assert not DeviceSurvey(tmp_path).is_complete


def _verdict(statuses: tuple[DeviceStatus, ...]) -> str:
    return statuses[0].verdict


def test_the_environment_is_ours() -> None:
    settings = {
        "PYTORCH_ENABLE_MPS_FALLBACK": "true",  # would end the process
        "PYTORCH_MPS_FAST_MATH": "1",
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.0",
        "HOME": "/",
    }
    environment.prepare(settings)
    assert settings["PYTORCH_ENABLE_MPS_FALLBACK"] == "1"
    low = float(settings["PYTORCH_MPS_LOW_WATERMARK_RATIO"])
    assert 0 < low <= float(settings["PYTORCH_MPS_HIGH_WATERMARK_RATIO"]) <= 1
    assert "PYTORCH_MPS_FAST_MATH" not in settings
    assert settings["HOME"] == "/"
