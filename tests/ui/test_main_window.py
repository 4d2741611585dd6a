"""The window as a person uses it: clicks and keys, with engines that know no torch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QComboBox

from macapp.messages import Failure, Message
from macapp.protocol import TrainingConfig
from macapp.trainer import TrainerState
from macapp.ui import progress_panel
from macapp.ui.preferences import Preferences
from tests import fake_engines
from tests.ui.conftest import OpenWindow, press, rows, state

if TYPE_CHECKING:
    from pathlib import Path

    from pytestqt.qtbot import QtBot

    from macapp.ui.main_window import MainWindow
    from macapp.ui.theme import Appearance


def wait_for(window: MainWindow, qtbot: QtBot, wanted: TrainerState) -> None:
    qtbot.waitUntil(lambda: state(window) is wanted, timeout=15_000)


def test_start_trains_and_everything_shows_it(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.quick)
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: rows(window) == 5)
    wait_for(window, qtbot, TrainerState.READY)
    page = window.train_page
    assert page.loss_plot.point_count == 5 * fake_engines.STEPS
    assert page.progress.text.startswith("Finished: 90.00 %")
    assert page.progress._bar.value() == 1000
    assert window.start_button.isEnabled()
    assert not page.progress.stop_button.isEnabled()


def test_start_pressed_early_says_so_and_then_trains(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.late, wait_until_ready=False)
    assert window.train_page.progress.text == "Preparing PyTorch…"
    assert window.start_button.isEnabled()
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: "Training starts by itself" in window.train_page.progress.text)
    assert not window.start_button.isEnabled()
    qtbot.waitUntil(lambda: rows(window) == 5, timeout=10_000)


def test_pause_resume_and_stop_by_their_buttons(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.slow)
    progress = window.train_page.progress
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: rows(window) >= 1)
    assert "left" in progress.text
    press(progress.pause_button, qtbot)
    wait_for(window, qtbot, TrainerState.PAUSED)
    assert progress.pause_button.text() == "Resume"
    assert "paused" in progress.text
    shown = rows(window), window.train_page.loss_plot.point_count
    qtbot.wait(300)
    assert shown == (rows(window), window.train_page.loss_plot.point_count)
    press(progress.pause_button, qtbot)
    wait_for(window, qtbot, TrainerState.RUNNING)
    before = rows(window)
    press(progress.stop_button, qtbot)
    wait_for(window, qtbot, TrainerState.READY)
    assert rows(window) >= before  # what was shown stays
    assert "Stopped. What was learned is kept" in progress.text


def test_the_keyboard_starts_and_stops(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.slow)
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    qtbot.keyClick(window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    wait_for(window, qtbot, TrainerState.RUNNING)
    qtbot.keyClick(window, Qt.Key.Key_Period, Qt.KeyboardModifier.ControlModifier)
    wait_for(window, qtbot, TrainerState.READY)


@pytest.mark.parametrize("engine", [fake_engines.aborts, fake_engines.is_killed])
def test_the_window_survives_its_engine(
    open_window: OpenWindow, qtbot: QtBot, engine: object
) -> None:
    window = open_window(engine)
    press(window.start_button, qtbot)
    qtbot.waitUntil(window.message_bar.isVisible, timeout=10_000)
    assert "engine" in window.message_bar.text
    assert "epochs finished so far are kept" in window.message_bar.text
    assert rows(window) == 1
    assert "SIG" not in window.message_bar.text
    press(window.message_bar._fold, qtbot)
    assert window.message_bar._details.isVisible()
    press(window.message_bar.copy_button, qtbot)
    copied = QApplication.clipboard().text()
    assert "failed assertion `it broke'" in copied
    assert '"learning_rate"' in copied
    wait_for(window, qtbot, TrainerState.READY)
    assert window.start_button.isEnabled()
    window.form.set_config(TrainingConfig(epochs=1))  # it dies in the second epoch only
    press(window.start_button, qtbot)
    assert not window.message_bar.isVisible()  # it is about the last run
    qtbot.waitUntil(lambda: window.train_page.progress.text.startswith("Finished"))


def test_a_failed_job_is_told_in_plain_words(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.failing)
    press(window.start_button, qtbot)
    qtbot.waitUntil(window.message_bar.isVisible)
    assert window.message_bar.text == (
        "There is not enough memory for this run. Choose a smaller batch size."
    )
    assert "Traceback" in window.message_bar.details
    assert not window.message_bar._details.isVisible()


def test_a_stop_without_an_answer_can_be_forced(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_panel, "FORCE_STOP_MS", 200)
    window = open_window(fake_engines.deaf)
    progress = window.train_page.progress
    press(window.start_button, qtbot)
    wait_for(window, qtbot, TrainerState.RUNNING)
    press(progress.stop_button, qtbot)
    wait_for(window, qtbot, TrainerState.STOPPING)
    assert not progress.stop_button.isEnabled()
    qtbot.waitUntil(lambda: progress.stop_button.text() == "Force stop")
    press(progress.stop_button, qtbot)
    wait_for(window, qtbot, TrainerState.READY)
    assert window.start_button.isEnabled()
    assert "Stopped by force" in progress.text


def test_a_waiting_run_can_be_stopped(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.late, wait_until_ready=False)
    progress = window.train_page.progress
    press(window.start_button, qtbot)
    qtbot.waitUntil(progress.stop_button.isEnabled)
    press(progress.stop_button, qtbot)
    wait_for(window, qtbot, TrainerState.READY)
    assert progress.text == "Stopped before the training began."
    assert rows(window) == 0


def test_quitting_asks_once_while_training(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.slow)
    press(window.start_button, qtbot)
    wait_for(window, qtbot, TrainerState.RUNNING)
    assert not window.close()
    assert window.quit_bar.isVisible()
    before = window.train_page.loss_plot.point_count
    qtbot.waitUntil(lambda: window.train_page.loss_plot.point_count > before)  # nothing is held
    press(window.quit_bar.close_button, qtbot)
    assert window.isVisible()
    assert state(window) is TrainerState.RUNNING
    assert not window.close()
    started = time.monotonic()
    press(window.quit_bar.action_button, qtbot)
    assert not window.isVisible()
    assert not window.trainer.isRunning()
    assert time.monotonic() - started < 5


def test_the_question_goes_when_the_run_ends(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.slow)
    window.form.set_config(TrainingConfig(epochs=1))
    press(window.start_button, qtbot)
    wait_for(window, qtbot, TrainerState.RUNNING)
    assert not window.close()
    wait_for(window, qtbot, TrainerState.READY)
    assert not window.quit_bar.isVisible()
    assert window.close()


def test_quitting_without_a_run_does_not_ask(open_window: OpenWindow) -> None:
    window = open_window(fake_engines.quick)
    assert window.close()


def test_the_devices_of_the_engine_reach_card_and_form(
    open_window: OpenWindow, qtbot: QtBot
) -> None:
    window = open_window(fake_engines.quick)
    panel = window.device_panel
    assert panel._versions.text() == "PyTorch 9.9"
    assert panel._reasons["mps"].text() == "Metal exists only on a Mac."
    assert panel._marks["cpu"].text() == "✔"
    editor = window.form._fields["device"].editor
    assert isinstance(editor, QComboBox)
    assert editor.itemText(0) == "Automatic: CPU"
    assert not editor.model().item(1).isEnabled()  # type: ignore[attr-defined]
    qtbot.waitUntil(lambda: panel._processor.text() != "…", timeout=10_000)
    assert "GB memory" in panel._system.text()


def test_settings_are_remembered(
    open_window: OpenWindow, qtbot: QtBot, preferences: Preferences
) -> None:
    window = open_window(fake_engines.quick)
    window.form.set_config(TrainingConfig(epochs=2, seed=7))
    press(window.start_button, qtbot)
    qtbot.waitUntil(lambda: rows(window) == 2)
    assert window.close()
    again = Preferences(preferences.path)
    assert again.config == TrainingConfig(epochs=2, seed=7)
    assert not again.geometry.isEmpty()


def test_settings_that_cannot_be_saved_are_said_and_training_goes_on(
    open_window: OpenWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    (tmp_path / "settings").write_text("a file where the folder should be")
    window = open_window(fake_engines.quick)
    press(window.start_button, qtbot)
    assert window.message_bar.isVisible()
    assert "settings cannot be saved" in window.message_bar.text
    assert str(tmp_path / "settings") in window.message_bar.text
    qtbot.waitUntil(lambda: rows(window) == 5)


def test_light_and_dark(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.quick)
    backgrounds = {}
    appearances: tuple[Appearance, ...] = ("light", "dark", "light")
    for appearance in appearances:
        window.set_appearance(appearance)
        QApplication.processEvents()
        brush = window.train_page.loss_plot.backgroundBrush()
        backgrounds[appearance] = brush.color().name()
    assert backgrounds == {"light": "#ffffff", "dark": "#1b1d20"}


def test_saving_the_network_is_answered(
    open_window: OpenWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    window = open_window(fake_engines.quick)
    window._save_chosen(str(tmp_path / "n.safetensors"))
    qtbot.waitUntil(lambda: "n.safetensors" in window.statusBar().currentMessage())


def test_a_failure_with_braces_in_its_values_is_shown(open_window: OpenWindow) -> None:
    window = open_window(fake_engines.quick)
    message = Message("It failed: {error}", {"error": "a {strange} text"})
    window.show_failure(Failure(message, Message("Try again.")))
    assert window.message_bar.text == "It failed: a {strange} text Try again."
