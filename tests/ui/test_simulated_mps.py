"""The real window and a real engine process, whose Metal fails as real ones do."""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from macapp.protocol import TrainingConfig
from macapp.trainer import TrainerState
from tests import faults_of_mps
from tests.simulated_mps import engine
from tests.ui.conftest import OpenWindow, press, rows, state

if TYPE_CHECKING:
    from pathlib import Path

    from pytestqt.qtbot import QtBot

    from macapp.ui.main_window import MainWindow

METAL = TrainingConfig(device="mps", epochs=4)
MS = 60_000


def begin(
    open_window: OpenWindow, qtbot: QtBot, case: str, checkpoints: Path | None = None
) -> MainWindow:
    kept = {"checkpoints": str(checkpoints)} if checkpoints else {}
    window = open_window(engine(case), wait_until_ready=False, **kept)
    qtbot.waitUntil(lambda: state(window) is TrainerState.READY, timeout=MS)
    qtbot.waitUntil(lambda: "Ready" in window.device_panel._reasons["mps"].text(), timeout=MS)
    window.form.set_config(METAL)
    press(window.start_button, qtbot)
    return window


def wait_for_the_end(window: MainWindow, qtbot: QtBot) -> None:
    qtbot.waitUntil(
        lambda: window.train_page.progress.text.startswith(("Finished", "The run has ended")),
        timeout=MS,
    )


@pytest.mark.parametrize("number", [0, 2, 5, 6, 12])
def test_a_gpu_that_dies_is_followed_by_the_cpu(
    open_window: OpenWindow, qtbot: QtBot, tmp_path: Path, number: int
) -> None:
    words, _, what = faults_of_mps.CRASHES[number]
    window = begin(open_window, qtbot, f"crash {number}", tmp_path)
    qtbot.waitUntil(window.message_bar.isVisible, timeout=MS)
    assert what in window.message_bar.text
    assert words in window.message_bar.details
    assert "SIG" not in window.message_bar.text
    assert rows(window) == 1
    button = window.message_bar.action_button
    assert button.text() == "Continue on the CPU from epoch 2"
    press(button, qtbot)
    wait_for_the_end(window, qtbot)
    assert rows(window) == 4
    assert window.train_page.loss_plot.point_count == 4 * 16
    form = window.form.config()
    assert form is not None
    assert form.device == "cpu"
    assert "torch" not in sys.modules


def test_without_an_epoch_the_cpu_begins_anew(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = begin(open_window, qtbot, "exception 15")
    qtbot.waitUntil(window.message_bar.isVisible, timeout=MS)
    assert "precision that it lacks" in window.message_bar.text
    assert window.message_bar.action_button.text() == "Train on the CPU instead"
    press(window.message_bar.help_button, qtbot)
    assert window.pages.currentWidget() is window.help_page


@pytest.mark.parametrize("number", range(len(faults_of_mps.GARBAGE)))
def test_garbage_marks_the_run(open_window: OpenWindow, qtbot: QtBot, number: int) -> None:
    window = begin(open_window, qtbot, f"garbage {number}")
    wait_for_the_end(window, qtbot)
    assert rows(window) == 4
    assert "do not trust the numbers" in window.train_page.notices.texts["garbage"]
    assert window.train_page.notices.isVisible()


def test_a_halved_batch_is_shown(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = begin(open_window, qtbot, "memory 0")
    wait_for_the_end(window, qtbot)
    assert rows(window) == 4
    assert "with 16 pictures a step" in window.train_page.notices.texts["batch"]
    assert window.train_page.loss_plot.point_count == 16 + 3 * 63
    assert window.train_page.progress._bar.value() == 1000


def test_fallbacks_are_shown_on_the_run(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = begin(open_window, qtbot, "fallback")
    wait_for_the_end(window, qtbot)
    assert "2 operators ran on the CPU" in window.train_page.notices.texts["fallback"]


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [("sleep", "sleep", "slept during epoch 2"), ("process grows", "growth", "has grown by")],
)
def test_what_befell_a_run_is_shown(
    open_window: OpenWindow, qtbot: QtBot, case: str, kind: str, words: str
) -> None:
    window = begin(open_window, qtbot, case)
    wait_for_the_end(window, qtbot)
    assert rows(window) == 4
    assert words in window.train_page.notices.texts[kind]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nan", "no longer a number since step 25"),
        ("stuck", "left a part of the network unchanged"),
        ("parity", "cannot be trusted with this network"),
        ("nothing_fits", "even for a batch of 1"),
        ("exception 8", "cannot compute one operator of this network (im2col)"),
    ],
)
def test_what_ends_a_run_is_said_in_plain_words(
    open_window: OpenWindow, qtbot: QtBot, case: str, words: str
) -> None:
    window = begin(open_window, qtbot, case)
    qtbot.waitUntil(window.message_bar.isVisible, timeout=MS)
    assert words in window.message_bar.text
    assert window.message_bar.help_button.isVisible()
    assert "Traceback" not in window.message_bar.text
    qtbot.waitUntil(lambda: state(window) is TrainerState.READY, timeout=MS)
    assert window.start_button.isEnabled()


@pytest.mark.parametrize(
    ("smoke_test", "words"),
    [
        ("memory", "a first small task failed"),
        ("crash", "made it crash"),
        ("hang", "never ended"),
        ("argmax", "computes wrong numbers"),
    ],
)
def test_a_metal_that_fails_its_test_is_not_offered_and_the_cpu_trains(
    open_window: OpenWindow, qtbot: QtBot, smoke_test: str, words: str
) -> None:
    window = open_window(engine("none", smoke_test=smoke_test), wait_until_ready=False)
    card = window.device_panel._reasons["mps"]
    qtbot.waitUntil(lambda: state(window) is TrainerState.READY, timeout=MS)
    qtbot.waitUntil(lambda: words in card.text(), timeout=MS)
    assert window.device_panel._marks["mps"].text() == "–"
    window.form.set_config(TrainingConfig(device="auto", epochs=1))
    press(window.start_button, qtbot)
    wait_for_the_end(window, qtbot)
    assert rows(window) == 1
    assert not window._continuation.ran_on_a_gpu


def test_a_hang_is_noticed(open_window: OpenWindow, qtbot: QtBot, tmp_path: Path) -> None:
    window = begin(open_window, qtbot, "hang", tmp_path)
    window.supervision.watchdog.silence_seconds = 1.0
    bar = window.watchdog_bar
    qtbot.waitUntil(bar.isVisible, timeout=MS)
    assert "The GPU has stopped answering" in bar.text
    press(bar.close_button, qtbot)  # Wait
    assert not bar.isVisible()
    qtbot.waitUntil(bar.isVisible, timeout=MS)
    press(bar.action_button, qtbot)  # Stop
    stop = window.train_page.progress.stop_button
    qtbot.waitUntil(lambda: stop.text() == "Force stop" and stop.isEnabled(), timeout=MS)
    press(stop, qtbot)
    qtbot.waitUntil(window.message_bar.isVisible, timeout=MS)
    assert window.message_bar.action_button.text() == "Continue on the CPU from epoch 2"


def test_a_driver_that_holds_the_gil_does_not_freeze_the_window(
    open_window: OpenWindow, qtbot: QtBot
) -> None:
    beats: list[float] = []
    timer = QTimer(interval=10)
    timer.timeout.connect(lambda: beats.append(time.monotonic()))
    window = begin(open_window, qtbot, "gil")
    timer.start()
    wait_for_the_end(window, qtbot)
    timer.stop()
    gaps = [later - earlier for earlier, later in itertools.pairwise(beats)]
    assert len(beats) > 50
    assert max(gaps) < 1.5  # the driver held its own interpreter for 2 s
    assert rows(window) == 4


def test_the_line_below_start_and_the_diagnostics(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = begin(open_window, qtbot, "none")
    wait_for_the_end(window, qtbot)
    qtbot.waitUntil(lambda: "all operators" in window.run_preview.text(), timeout=MS)
    qtbot.waitUntil(lambda: window.train_page.readings.values["cpu"].text() != "–", timeout=MS)
    press(window.device_panel.copy_button, qtbot)
    text = QApplication.clipboard().text()
    assert "MPS built: True" in text
    assert "EpochDone" in text  # the log
    assert str(window._preferences.path.home()) not in text
    press(window.device_panel.test_button, qtbot)
    qtbot.waitUntil(window.device_panel.test_button.isEnabled, timeout=MS)
