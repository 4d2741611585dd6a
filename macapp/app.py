"""The window process: QApplication, settings, the trainer, the main window."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import traceback
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QObject, QStandardPaths, QTimer, Signal
from PySide6.QtWidgets import QApplication

from macapp import __version__, resources
from macapp.diagnostics import Diagnostics
from macapp.engine import process
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message
from macapp.protocol import Folders
from macapp.trainer import Trainer
from macapp.ui import theme
from macapp.ui.main_window import MainWindow
from macapp.ui.preferences import Preferences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class ErrorReporter(QObject):
    """Turns an exception that nobody caught into a signal; the window shows it and goes on."""

    failed = Signal(object)
    """A `Failure`."""

    def install(self) -> None:
        """Take over `sys.excepthook`, which also hears of exceptions in slots and QThreads."""
        sys.excepthook = self.report
        threading.excepthook = lambda args: self.report(
            args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback
        )

    def report(
        self,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """Print the exception for developers, and emit it for the window."""
        details = "".join(traceback.format_exception(kind, error, trace))
        if sys.stderr is not None:  # None in a windowed app on Windows
            sys.stderr.write(details)
        self.failed.emit(
            Failure(
                Message(QT_TRANSLATE_NOOP("Message", "Something went wrong in the window.")),
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message",
                        "A run in progress goes on. Please report it with the copied diagnostics.",
                    )
                ),
                details,
            )
        )


def make_application(arguments: list[str]) -> QApplication:
    """Return the QApplication, named, so that the system's folders for us are known."""
    QCoreApplication.setApplicationName("Metal Trainer")
    QCoreApplication.setApplicationVersion(__version__)
    return QApplication(arguments)


def settings_path() -> Path:
    """Return where settings live. Never inside the app, which may be read-only."""
    folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.AppConfigLocation)
    return Path(folder) / "settings.ini"


def cache_path() -> Path:
    """Return where what can be found out again is kept: the result of the GPU's test."""
    return Path(QStandardPaths.writableLocation(QStandardPaths.StandardLocation.CacheLocation))


def log_path() -> Path:
    """Return where logs are written: on a Mac where its Console app looks for them."""
    location = QStandardPaths.StandardLocation
    if sys.platform == "darwin":
        home = QStandardPaths.writableLocation(location.HomeLocation)
        return Path(home) / "Library" / "Logs" / "Metal Trainer"
    return Path(QStandardPaths.writableLocation(location.AppLocalDataLocation)) / "logs"


@contextmanager
def make_folders() -> Iterator[Folders]:
    """Return what the engine is told; the folder for checkpoints ends with the window."""
    with tempfile.TemporaryDirectory(prefix="metal-trainer-", ignore_cleanup_errors=True) as work:
        yield Folders(str(resources.folder()), str(cache_path()), work)


def make_window(
    app: QApplication,
    preferences: Preferences,
    folders: Folders,
    diagnostics: Diagnostics,
) -> MainWindow:
    """Return the main window, in the appearance remembered, with a trainer for the real engine."""
    apply_appearance = partial(theme.apply, app)
    apply_appearance(preferences.appearance)
    trainer = Trainer(process.main, folders)
    help_folder = Path(folders.resources) / "help"
    window = MainWindow(trainer, preferences, apply_appearance, diagnostics, help_folder)
    trainer.setParent(window)
    return window


def run() -> int:
    """Show the window until it is closed; return the exit code."""
    app = make_application(sys.argv[:1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in a terminal ends the app
    preferences = Preferences(settings_path())
    with make_folders() as folders:
        diagnostics = Diagnostics(log_path())
        window = make_window(app, preferences, folders, diagnostics)
        reporter = ErrorReporter(window)
        reporter.failed.connect(window.show_failure)
        reporter.install()
        window.show()
        # After the first paint: a new process competes with it for the processor.
        QTimer.singleShot(0, window.start_services)
        code = app.exec()
        diagnostics.close()
        return code
