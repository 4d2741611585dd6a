"""Log files, and the text that is copied from them."""

from __future__ import annotations

import getpass
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp import diagnostics
from macapp.diagnostics import Diagnostics, anonymous, log
from macapp.messages import Failure, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = "/Users/ada"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs"
    assert not log.handlers, "somebody did not close"


def test_a_report_has_everything(logs: Path) -> None:
    kept = Diagnostics(logs)
    for number in range(diagnostics.LAST_FAILURES + 1):
        what = Message("Step {step} failed.", {"step": number})
        kept.take_failure(Failure(what, Message("Try again."), f"Traceback {number}"))
    log.info("EpochDone 3 %s/logged", Path.home())
    facts = {"machine": {"processor": "Apple M1"}, "file": f"{Path.home()}/torch.py"}
    report = kept.report(facts)
    kept.close()
    assert '"processor": "Apple M1"' in report
    assert '"~/torch.py"' in report
    assert "~/logged" in report
    assert str(Path.home()) not in report
    failures, _, tail = report.partition("\nLog:\n")
    assert "Step 0 failed" not in failures  # only the last ones
    assert "Step 5 failed. Try again.\nTraceback 5" in failures
    assert "EpochDone 3" in tail


def test_logs_rotate(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "LOG_BYTES", 10_000)
    kept = Diagnostics(logs)
    for number in range(2000):
        log.info("line %d %s", number, "x" * 50)
        if number % 97 == 0:
            tail = kept.log_tail().splitlines()
            assert len(tail) == min(number + 1, diagnostics.TAIL_LINES)
            assert f"line {number} " in tail[-1]
    kept.close()
    files = [path for path in logs.iterdir() if path.name.startswith("metal-trainer.log")]
    assert len(files) == diagnostics.LOG_FILES
    assert sum(path.stat().st_size for path in files) <= diagnostics.LOG_FILES * 10_000


def test_a_log_that_cannot_be_written_is_done_without(logs: Path) -> None:
    logs.write_text("a file, not a folder")
    kept = Diagnostics(logs)
    kept.take_failure(Failure(Message("It failed."), Message("Try again.")))
    assert "It failed." in kept.report({})
    assert "Log:" not in kept.report({})
    kept.close()
    kept.close()


def test_a_log_that_is_taken_away_is_done_without(logs: Path) -> None:
    kept = Diagnostics(logs)
    (logs / "metal-trainer.log").unlink()
    assert kept.log_tail() == ""
    kept.close()


def test_a_crash_of_the_window_is_in_the_next_report(logs: Path) -> None:
    dying = (
        "import os, pathlib, signal\n"
        "from macapp.diagnostics import Diagnostics\n"
        f"kept = Diagnostics(pathlib.Path({str(logs)!r}))\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    ended = subprocess.run([sys.executable, "-c", dying], check=False)
    assert ended.returncode < 0
    kept = Diagnostics(logs)
    assert "Fatal Python error: Segmentation fault" in kept.report({})
    kept.close()
    again = Diagnostics(logs)  # it is told once, and then in the log
    assert again.report({}).count("Fatal Python error") == 1
    again.close()


# Nobody's name ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/Users/ada/Pictures/cats", "~/Pictures/cats"),
        ('File "/Users/ada/x.py", line 3', 'File "~/x.py", line 3'),
        ("file:///Users/ada/Desktop", "file://~/Desktop"),
        ("/private/var/folders/ada/T", "/private/var/folders/(user)/T"),
        ("C:\\Users\\Ada\\x", "C:\\Users\\(user)\\x"),
        ("owner: ada (501)", "owner: (user) (501)"),
        ("ada_lovelace", "(user)_lovelace"),
        ("adagrad, Adam, Nevada", "adagrad, Adam, Nevada"),
        ("/Volumes/Data/照片", "/Volumes/Data/照片"),
    ],
)
def test_names_are_removed(text: str, expected: str) -> None:
    assert anonymous(text, HOME, "ada") == expected


def test_a_chinese_name_is_removed() -> None:
    assert anonymous("/Users/李华/图片 by 李华", "/Users/李华", "lihua") == "~/图片 by (user)"


def test_a_user_with_a_home_of_another_name() -> None:
    text = anonymous("/Volumes/work/homes/a.l/x ada a.l axl", "/Volumes/work/homes/a.l", "ada")
    assert text == "~/x (user) (user) axl"


def test_a_home_that_is_the_root_replaces_no_slashes() -> None:
    assert anonymous("/usr/bin/x", "/", "ada") == "/usr/bin/x"


def test_by_default_it_is_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(getpass, "getuser", lambda: "grace")
    assert anonymous(f"{tmp_path}/x by grace") == "~/x by (user)"


def test_a_user_without_a_name_keeps_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 501")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert anonymous("nothing here", "/") == "nothing here"


@given(st.text(), st.text(min_size=1), st.text(min_size=1, alphabet="abcäß李- ."))
def test_any_text_keeps_no_home(text: str, rest: str, user: str) -> None:
    home = f"/Users/{user}"
    assert home + "/" not in anonymous(f"{text}{home}/{rest}", home, user)
