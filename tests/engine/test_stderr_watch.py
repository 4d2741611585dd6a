"""What C code prints on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from macapp.engine.stderr_watch import watch_stderr
from tests import faults_of_mps

if TYPE_CHECKING:
    from pathlib import Path


def test_everything_is_passed_on_and_errors_are_noted_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with watch_stderr() as watch:
        os.write(2, b"a warning\n")
        assert watch.news() is None
        os.write(2, faults_of_mps.GARBAGE[0].encode())
    notice = watch.news()
    assert notice is not None
    assert notice.kind == "garbage"
    assert watch.news() is None
    os.write(2, b"after it\n")
    printed = capfd.readouterr().err
    assert printed == f"a warning\n{faults_of_mps.GARBAGE[0]}after it\n"


def test_the_descriptor_comes_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(ZeroDivisionError), watch_stderr():
        raise ZeroDivisionError
    os.write(2, b"still here\n")
    assert capfd.readouterr().err == "still here\n"
    assert len(os.listdir("/dev/fd")) == before


def test_more_than_a_pipe_holds_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with watch_stderr():
        for _ in range(200):
            os.write(2, b"x" * 4096)
    assert len(capfd.readouterr().err) == 200 * 4096


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("garbage 0", "do not trust the numbers"),
        ("fallback", "2 operators ran on the CPU"),
        ("memory 0", "with 16 pictures a step"),
    ],
)
def test_a_run_in_a_terminal_says_what_happened_to_it(tmp_path: Path, case: str, said: str) -> None:
    command = ["train", "--device", "mps", "--epochs", "2", "--output", str(tmp_path)]
    code = (
        "import sys; from tests import simulated_mps; from macapp import command_line\n"
        f"with simulated_mps.installed({case!r}): sys.exit(command_line.run({command}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["outcome"] == "finished"
    assert any(said in notice for notice in result["notices"])
