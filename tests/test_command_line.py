"""The command line as a shell sees it: processes, exit codes, files, what is printed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from macapp import __version__, resources

ENGINE_TIMEOUT = 100
QUICK = ("--device", "cpu", "--batch-size", "1024", "--epochs", "1")
ENDLESS = (*QUICK[:-1], "1000")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "macapp", *arguments],
        capture_output=True,
        text=True,
        timeout=ENGINE_TIMEOUT,
        cwd=cwd,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
    )


def result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


def test_the_articles_run_in_one_command(tmp_path: Path) -> None:
    folder = tmp_path / "a new folder" / "结果"
    done = run(
        "train", "--preset", "article", "--device", "cpu", "--epochs", "1", "--output", str(folder)
    )
    assert done.returncode == 0
    assert done.stderr == ""
    first, epoch = done.stdout.splitlines()
    assert first == "cpu: 21,840 parameters"
    assert epoch.startswith("epoch 1/1: ")
    assert "images/s, train loss 0." in epoch

    written = result(folder)
    assert {"config", "machine", "versions", "epochs"} <= written.keys()
    assert written["config"]["batch_size"] == 64
    assert written["outcome"] == "finished"
    assert written["versions"]["torch"]
    assert written["machine"]["memory_bytes"] > 0
    (row,) = written["epochs"]
    for key in ("epoch", "seconds", "images_per_second", "train_loss", "test_loss"):
        assert row[key] > 0
    assert row["images_per_second"] == pytest.approx(60_000 / row["seconds"])
    assert 0.94 < row["test_accuracy"] < 0.98
    assert (folder / "weights.safetensors").stat().st_size > 4 * 21_840


def test_the_same_seed_gives_the_same_losses(tmp_path: Path) -> None:
    losses = []
    for folder, seed in (("1", "5"), ("2", "5"), ("3", "6")):
        run("train", *QUICK, "--seed", seed, "--output", str(tmp_path / folder))
        losses.append(
            [(e["train_loss"], e["test_loss"]) for e in result(tmp_path / folder)["epochs"]]
        )
    assert losses[0] == losses[1] != losses[2]


def test_devices_as_json_shows_what_the_card_shows() -> None:
    done = run("devices", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["machine"]["logical_cores"] >= 1
    assert report["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    by_kind = {device["kind"]: device for device in report["devices"]}
    assert set(by_kind) == {"mps", "cuda", "cpu"}
    assert by_kind["cpu"]["ready"] is True
    for device in by_kind.values():
        assert device["reason"].endswith(".")


def test_a_crash_of_the_driver_at_the_end_is_no_failure() -> None:
    """Metal's destructors have crashed when a process ended that used MPS (pytorch#188812)."""
    code = (
        "import atexit, os, signal, sys\n"
        "from macapp.__main__ import main\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGSEGV)\n"
        "sys.argv[1:] = ['devices', '--json']\n"
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=ENGINE_TIMEOUT
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["devices"]


def test_devices_for_people() -> None:
    done = run("devices")
    assert done.returncode == 0
    assert "cpu   ready  Ready, with" in done.stdout
    assert "PyTorch" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("train", "--epochs", "0"), "Epochs must be between 1 and 1000."),
        (("train", "--epochs", "1001"), "Epochs must be between 1 and 1000."),
        (("train", "--epochs", "two"), "Epochs must be a whole number."),
        (("train", "--batch-size", "8193"), "Batch size must be between 1 and 8192."),
        (("train", "--learning-rate", "nan"), "Learning rate must be a number."),
        (("train", "--momentum", "1"), "Momentum must be between 0 and 0.999."),
        (("train", "--weight-decay", "-1"), "Weight decay must be between 0 and 1."),
        (("train", "--device", "tpu"), "Device must be one of: auto, mps, cuda, cpu."),
        (("train", "--preset", "best"), "invalid choice: 'best'"),
        (("train", "--speed", "9"), "unrecognized arguments: --speed 9"),
        (("dance",), "invalid choice: 'dance'"),
        (("--self-test", "r.json", "--size", "big"), "must be like 1280x800"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(
    options: tuple[str, ...], words: str
) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_version_need_neither_torch_nor_a_screen() -> None:
    code = (
        "import sys, macapp.command_line as c\n"
        "try: c.run(sys.argv[1:])\n"
        "finally: print({'torch', 'PySide6'} & set(sys.modules))"
    )
    for option, words in (("--version", __version__), ("--help", "self-test")):
        done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True)
        assert words in done.stdout
        assert done.stdout.endswith("set()\n")


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac may have Metal")
def test_a_device_that_is_not_there_is_a_sentence() -> None:
    done = run("train", "--device", "mps")
    assert done.returncode == 1
    assert done.stderr == (
        "Metal exists only on a Mac.\nChoose another device, for example the CPU.\n"
    )


def test_a_folder_that_cannot_be_made_is_said_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for arguments in (
        ("train", *QUICK, "--output", str(tmp_path / "file" / "x")),
        ("--self-test", str(tmp_path / "file" / "report.json")),
    ):
        done = run(*arguments)
        assert done.returncode == 1
        assert "cannot be written.\nChoose a folder that you may write to" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_a_result_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    done = run("train", *QUICK, "--output", str(tmp_path))
    assert done.returncode == 1
    assert "result.json cannot be written." in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_keeps_what_was_learned(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "macapp", "train", *ENDLESS, "--output", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("epoch 1/"):
            break
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=ENGINE_TIMEOUT)
    assert running.returncode == 130
    assert errors == "Stopped.\n"
    assert result(tmp_path)["outcome"] == "stopped"
    assert result(tmp_path)["epochs"][0]["epoch"] == 1
    assert (tmp_path / "weights.safetensors").exists()


def test_a_diverging_run_says_what_to_do_and_keeps_its_record(tmp_path: Path) -> None:
    done = run("train", "--device", "cpu", "--learning-rate", "10", "--output", str(tmp_path))
    assert done.returncode == 1
    assert "Lower the learning rate, for example to 1," in done.stderr
    assert result(tmp_path)["outcome"] == "failed"


@pytest.fixture
def damaged_app(tmp_path: Path) -> Path:
    """A copy of the app, one byte of whose data was changed."""
    shutil.copytree(Path(resources.__file__).parent, tmp_path / "macapp")
    shutil.copytree(resources.folder() / "mnist", tmp_path / "resources" / "mnist")
    file = tmp_path / "resources" / "mnist" / "train-labels-idx1-ubyte.gz"
    content = bytearray(file.read_bytes())
    content[5000] ^= 1
    file.write_bytes(content)
    return tmp_path


def test_changed_data_is_found_before_training(damaged_app: Path) -> None:
    done = run("train", *QUICK, cwd=damaged_app)
    assert done.returncode == 1
    assert "train-labels-idx1-ubyte.gz is damaged or was changed" in done.stderr
    assert "1787548bbe0bff1e" in done.stderr  # the digest that it should have
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_self_test_passes_and_reports(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    pictures = tmp_path / "pictures"
    done = run(
        "--self-test", str(path), "--device", "cpu", "--epochs", "1",
        "--screenshots", str(pictures), "--size", "1100x700",
    )  # fmt: skip
    report = json.loads(path.read_text())
    assert report["problems"] == []
    assert report["ok"] is True
    assert done.returncode == 0
    assert report["torch_in_window_process"] is False
    assert report["frozen"] is False
    assert report["plotted_points"] == 938
    assert len(report["epoch_seconds"]) == 1
    assert report["test_accuracy"] > 0.94
    assert set(report["event_loop_gap_ms"]) == {"p50", "p99", "max"}
    assert 0 < report["window_shown_seconds"] < report["engine_ready_seconds"]
    assert report["versions"]["torch"]
    assert {picture.name for picture in pictures.iterdir()} == {"1-train.png", "2-help.png"}
    for picture in pictures.iterdir():
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 1100  # the width, in the first chunk


def test_the_self_test_fails_when_training_does(damaged_app: Path) -> None:
    done = run("--self-test", "report.json", "--device", "cpu", cwd=damaged_app)
    assert done.returncode == 1
    report = json.loads((damaged_app / "report.json").read_text())
    assert report["ok"] is False
    assert "is damaged or was changed" in report["problems"][0]
