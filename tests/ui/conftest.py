from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from PySide6.QtCore import Qt

import macapp.resources
from macapp.diagnostics import Diagnostics
from macapp.protocol import Folders
from macapp.trainer import Trainer, TrainerState
from macapp.ui import theme
from macapp.ui.main_window import MainWindow
from macapp.ui.preferences import Preferences

if TYPE_CHECKING:
    from pathlib import Path

    from PySide6.QtWidgets import QAbstractButton, QApplication
    from pytestqt.qtbot import QtBot

OpenWindow = Callable[..., MainWindow]


@pytest.fixture
def preferences(tmp_path: Path) -> Preferences:
    return Preferences(tmp_path / "settings" / "settings.ini")


@pytest.fixture
def open_window(qapp: QApplication, qtbot: QtBot, preferences: Preferences) -> Iterator[OpenWindow]:
    """Return a function that opens the real window on a given engine."""
    windows: list[MainWindow] = []
    opened: list[Diagnostics] = []

    def open_window(
        engine: Any, *, wait_until_ready: bool = True, resources: object = "unused", **kept: str
    ) -> MainWindow:
        trainer = Trainer(engine, Folders(str(resources), **kept))
        apply = partial(theme.apply, qapp)
        help_folder = macapp.resources.folder() / "help"
        diagnostics = Diagnostics(preferences.path.parent.parent / "logs")
        window = MainWindow(trainer, preferences, apply, diagnostics, help_folder)
        opened.append(diagnostics)
        trainer.setParent(window)
        windows.append(window)
        window.show()
        qtbot.waitExposed(window)
        window.start_services()
        if wait_until_ready:
            qtbot.waitUntil(lambda: state(window) is TrainerState.READY, timeout=15_000)
        return window

    yield open_window
    for window in windows:
        window.close()
        window.close()  # the first one may have been a question
        assert not window.trainer.isRunning()
        window.deleteLater()
    for diagnostics in opened:
        diagnostics.close()


def press(button: QAbstractButton, qtbot: QtBot) -> None:
    assert button.isEnabled()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def rows(window: MainWindow) -> int:
    """How many epochs the table shows."""
    return window.train_page.epoch_table.epoch_model.rowCount()


def state(window: MainWindow) -> TrainerState:
    return window._state
