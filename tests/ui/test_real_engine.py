"""The window with the real engine: it must outlive it, and take it along when it goes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from macapp import resources
from macapp.engine import process
from macapp.protocol import Folders, TrainingConfig
from macapp.trainer import Trainer, TrainerState
from tests.processes import still_running
from tests.ui.conftest import OpenWindow, press, rows, state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytestqt.qtbot import QtBot

    from macapp.ui.main_window import MainWindow

QUICK = TrainingConfig(device="cpu", epochs=1, batch_size=1024)
ENDLESS = TrainingConfig(device="cpu", epochs=1000, batch_size=1024)
ENGINE_MS = 60_000


@pytest.fixture
def window(open_window: OpenWindow) -> MainWindow:
    return open_window(process.main, resources=resources.folder())


def engine_pid() -> int:
    (engine,) = multiprocessing.active_children()
    assert engine.pid is not None
    return engine.pid


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
def test_an_engine_that_dies_mid_epoch_costs_no_finished_epoch(
    window: MainWindow, qtbot: QtBot, how: signal.Signals
) -> None:
    window.form.set_config(ENDLESS)
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: rows(window) == 1, timeout=ENGINE_MS)
    points = window.train_page.loss_plot.point_count
    qtbot.waitUntil(lambda: window.train_page.loss_plot.point_count > points)  # mid-epoch
    finished = window.train_page.epoch_table.epoch_model.epochs
    os.kill(engine_pid(), how)

    qtbot.waitUntil(window.message_bar.isVisible, timeout=5000)
    assert window.isVisible()
    assert "training engine" in window.message_bar.text
    assert "epochs finished so far are kept" in window.message_bar.text
    assert how.name in window.message_bar.details
    assert how.name not in window.message_bar.text
    shown = window.train_page.epoch_table.epoch_model.epochs
    assert shown[: len(finished)] == finished

    window.form.set_config(QUICK)
    press(window.start_button, qtbot)  # the new engine is not ready yet: it waits
    qtbot.waitUntil(
        lambda: window.train_page.progress.text.startswith("Finished"), timeout=ENGINE_MS
    )
    assert rows(window) == 1
    assert "torch" not in sys.modules


def test_stop_is_answered_within_a_second(window: MainWindow, qtbot: QtBot) -> None:
    window.form.set_config(TrainingConfig(device="cpu", epochs=1000))
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: window.train_page.loss_plot.point_count > 50, timeout=ENGINE_MS)
    pressed = time.monotonic()
    press(window.train_page.progress.stop_button, qtbot)
    qtbot.waitUntil(lambda: state(window) is TrainerState.READY)
    assert time.monotonic() - pressed < 1.0
    assert window.train_page.loss_plot.point_count > 50
    assert "What was learned is kept" in window.train_page.progress.text


def test_quit_while_training_ends_within_five_seconds(window: MainWindow, qtbot: QtBot) -> None:
    window.form.set_config(ENDLESS)
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: state(window) is TrainerState.RUNNING, timeout=ENGINE_MS)
    assert not window.close()  # asks
    started = time.monotonic()
    press(window.quit_bar.action_button, qtbot)
    assert not window.isVisible()
    assert time.monotonic() - started < 5.0
    assert multiprocessing.active_children() == []


def test_a_loss_that_is_no_number_stops_the_run_with_advice(
    window: MainWindow, qtbot: QtBot
) -> None:
    window.form.set_config(TrainingConfig(device="cpu", learning_rate=10.0))
    press(window.start_button, qtbot)
    qtbot.waitUntil(window.message_bar.isVisible, timeout=ENGINE_MS)
    assert "The loss is no longer a number since step" in window.message_bar.text
    assert "Lower the learning rate, for example to 1," in window.message_bar.text
    assert window.train_page.loss_plot.point_count > 0
    assert window.start_button.isEnabled()


def test_a_missing_data_file_is_named_and_the_app_goes_on(
    open_window: OpenWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    shutil.copytree(resources.folder() / "mnist", tmp_path / "mnist")
    file = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    content = file.read_bytes()
    file.unlink()
    window = open_window(process.main, resources=tmp_path)
    window.form.set_config(QUICK)
    press(window.start_button, qtbot)
    qtbot.waitUntil(window.message_bar.isVisible, timeout=ENGINE_MS)
    assert "The data file t10k-labels-idx1-ubyte.gz, with the SHA-256 digest b91679a0acfe4ba0" in (
        window.message_bar.text
    )
    assert "cannot be read" in window.message_bar.text
    assert "Traceback" not in window.message_bar.text
    assert rows(window) == 0
    file.write_bytes(content)
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: rows(window) == 1, timeout=ENGINE_MS)


@pytest.fixture
def app_process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The app in a session of its own, training for ever by its own self-test."""
    report = tmp_path / "report.json"
    app = subprocess.Popen(
        [sys.executable, "-m", "macapp", "--self-test", str(report), "--epochs", "1000"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield app
    app.kill()
    app.wait()


@pytest.mark.parametrize("moment", ["loading torch", "training"])
def test_a_killed_window_leaves_no_engine(
    app_process: subprocess.Popen[bytes], qtbot: QtBot, moment: str
) -> None:
    def busy_children() -> list[psutil.Process]:
        least = 8.0 if moment == "training" else 0.3
        children = psutil.Process(app_process.pid).children(recursive=True)
        return [child for child in children if sum(child.cpu_times()[:2]) > least]

    qtbot.waitUntil(lambda: busy_children() != [], timeout=ENGINE_MS)
    children = psutil.Process(app_process.pid).children(recursive=True)
    app_process.kill()
    app_process.wait()
    assert still_running(children, 2) == []


def test_the_trainer_needs_no_window(qtbot: QtBot) -> None:
    trainer = Trainer(process.main, Folders(str(resources.folder())))
    with qtbot.waitSignal(trainer.job_ended, timeout=ENGINE_MS):
        trainer.start()
        trainer.train(QUICK)
    trainer.shutdown()
    assert trainer.wait(5000)
