"""The app as a whole: its start, and what becomes of an error that nobody caught."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import psutil
import pytest
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from macapp import app
from tests import fake_engines
from tests.processes import still_running
from tests.ui.conftest import press

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytestqt.qtbot import QtBot

    from macapp.ui.main_window import MainWindow
    from tests.ui.conftest import OpenWindow


class Clumsy(QObject):
    """Fails in a slot, as a bug of ours would."""

    called = Signal(object)

    @Slot(object)
    def fail(self, _nothing: object) -> None:
        raise ZeroDivisionError("a bug")


@pytest.fixture
def window(open_window: OpenWindow) -> Iterator[MainWindow]:
    """A window that hears of every exception nobody caught."""
    window = open_window(fake_engines.slow)
    reporter = app.ErrorReporter(window)
    reporter.failed.connect(window.show_failure)
    hooks = sys.excepthook, threading.excepthook
    reporter.install()
    yield window
    sys.excepthook, threading.excepthook = hooks


@pytest.mark.parametrize("where", ["slot", "thread"])
@pytest.mark.qt_no_exception_capture
def test_a_bug_in_the_window_is_said_and_the_run_goes_on(
    window: MainWindow, qtbot: QtBot, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    press(window.start_button, qtbot)
    clumsy = Clumsy()
    clumsy.called.connect(clumsy.fail)
    if where == "slot":
        QTimer.singleShot(0, lambda: clumsy.called.emit(None))
    else:
        threading.Thread(target=clumsy.fail, args=(None,)).start()
    qtbot.waitUntil(window.message_bar.isVisible)
    assert window.message_bar.text.startswith("Something went wrong in the window.")
    assert "Traceback" not in window.message_bar.text
    assert "ZeroDivisionError: a bug" in window.message_bar.details
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err  # for developers
    plot = window.train_page.loss_plot
    before = plot.point_count
    qtbot.waitUntil(lambda: plot.point_count > before)


def start_app(home: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if "XDG" not in name}
    return subprocess.Popen(
        [sys.executable, "-m", "macapp"],
        env=environment | {"HOME": str(home), "QT_QPA_PLATFORM": "offscreen"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("home_is", ["empty", "a file", "missing"])
def test_the_app_opens_with_any_home_and_ends_with_ctrl_c(
    tmp_path: Path, qtbot: QtBot, home_is: str
) -> None:
    home = tmp_path / "家 home"
    if home_is == "empty":
        home.mkdir()
    elif home_is == "a file":
        home.write_text("")
    process = start_app(home)
    try:
        this = psutil.Process(process.pid)
        # The engine starts when the window is on screen; this is while it loads torch.
        qtbot.waitUntil(
            lambda: any(child.cpu_times().user > 0.2 for child in this.children()), timeout=20_000
        )
        children = this.children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
    assert "Traceback" not in errors, errors
    assert process.returncode == -signal.SIGINT
    assert still_running(children, 2) == []
