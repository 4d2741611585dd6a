"""What must hold the hundredth time, too."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLineEdit, QListWidget, QPushButton

from macapp.protocol import Folders, TrainingConfig
from macapp.trainer import Trainer, TrainerState
from tests import fake_engines
from tests.processes import still_running
from tests.test_trainer import SIGNALS
from tests.ui.conftest import OpenWindow, press

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot

EMISSIONS = 20_000
CYCLES = 30


class Receiver(QObject):
    """Counts what arrives at slots of each kind that the app has."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @Slot()
    def nothing(self) -> None:
        self.count += 1

    @Slot(bool)
    def flag(self, _value: bool) -> None:
        self.count += 1

    @Slot(int)
    def number(self, _value: int) -> None:
        self.count += 1

    @Slot(str)
    def text(self, _value: str) -> None:
        self.count += 1

    @Slot(object)
    def thing(self, _value: object) -> None:
        self.count += 1


def test_20000_emissions_of_each_kind_of_qt_signal(qtbot: QtBot) -> None:
    """PySide6 6.12.0 aborts here on Python 3.11, after some 2,000 with a bool or nothing."""
    receiver = Receiver()
    timer, button, action = QTimer(), QPushButton(), QAction()
    pages, line = QListWidget(), QLineEdit()
    button.setCheckable(True)
    for widget in (button, pages, line):
        qtbot.addWidget(widget)
    timer.timeout.connect(receiver.nothing)
    button.clicked.connect(receiver.flag)
    button.clicked.connect(receiver.nothing)
    button.toggled.connect(receiver.flag)
    action.triggered.connect(receiver.flag)
    pages.currentRowChanged.connect(receiver.number)
    line.textChanged.connect(receiver.text)
    for index in range(EMISSIONS):
        timer.timeout.emit()
        button.click()
        action.trigger()
        pages.currentRowChanged.emit(index)
        line.textChanged.emit(f"学习率 {index}")
    assert receiver.count == 7 * EMISSIONS


@pytest.mark.parametrize("name", ["state_changed", *SIGNALS])
def test_20000_emissions_of_each_signal_of_the_trainer(qtbot: QtBot, name: str) -> None:
    trainer = Trainer(fake_engines.quick, Folders("unused"))
    receiver = Receiver()
    signal = getattr(trainer, name)
    signal.connect(receiver.thing)
    payloads = (fake_engines.READY, TrainerState.READY, None)
    for index in range(EMISSIONS):
        signal.emit(payloads[index % len(payloads)])
    assert receiver.count == EMISSIONS


def test_20000_messages_of_the_engine_reach_the_plot(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.floods)
    press(window.start_button, qtbot)
    plot = window.train_page.loss_plot
    qtbot.waitUntil(lambda: plot.point_count == fake_engines.FLOOD, timeout=60_000)
    np.testing.assert_array_equal(plot._losses[: fake_engines.FLOOD], range(fake_engines.FLOOD))


def test_20000_presses_of_start_start_one_job(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(fake_engines.slow)
    window.form.set_config(TrainingConfig(epochs=1))
    started: list[object] = []
    window.trainer.job_started.connect(started.append)
    for _ in range(EMISSIONS):
        window.start_button.clicked.emit()
    qtbot.waitUntil(lambda: window.train_page.progress.text.startswith("Finished"), timeout=10_000)
    qtbot.wait(500)
    assert len(started) == 1


def _cycle(moment: str) -> tuple[int, list[psutil.Process]]:
    """Run one app; return its exit code and the processes that it left behind."""
    app = subprocess.Popen(
        [sys.executable, "-m", "tests.ui.one_cycle", moment],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output, _ = app.communicate(timeout=60)
    lines = [line for line in output.splitlines() if b"propagateSizeHints" not in line]
    assert lines == []  # no warning of Qt, no traceback
    left = [process for process in psutil.process_iter() if _session(process) == app.pid]
    # Python's own resource tracker goes a moment after the app whose pipe it holds.
    return app.returncode, still_running(left, 2)


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:  # it has ended meanwhile
        return None


def test_quitting_while_torch_loads(qtbot: QtBot) -> None:
    for _ in range(3):
        assert _cycle("preparing") == (0, [])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_start_train_quit_many_times(qtbot: QtBot) -> None:
    assert [_cycle("training") for _ in range(CYCLES)] == CYCLES * [(0, [])]
