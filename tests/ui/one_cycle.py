"""Open the app, train a little, quit: ``python -m tests.ui.one_cycle training|preparing``.

What `macapp.app.run` does, with a hand that presses the buttons.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtTest import QTest

from macapp import app, resources
from macapp.diagnostics import Diagnostics
from macapp.protocol import Folders, TrainingConfig
from macapp.ui.preferences import Preferences

if TYPE_CHECKING:
    from macapp.ui.main_window import MainWindow


class Hand(QObject):
    """Presses Start, and quits when the first steps are shown, or at once."""

    def __init__(self, window: MainWindow, moment: str) -> None:
        super().__init__(window)
        self._window = window
        if moment == "training":
            window.trainer.steps_done.connect(self.quit)
        else:
            QTimer.singleShot(300, self.quit)

    @Slot()
    def start(self) -> None:
        self._window.start_services()
        self._window.form.set_config(TrainingConfig(device="cpu", epochs=1000))
        QTest.mouseClick(self._window.start_button, Qt.MouseButton.LeftButton)

    @Slot()
    def quit(self) -> None:
        if self._window.isVisible():
            self._window.close()  # asks
            QTest.mouseClick(self._window.quit_bar.action_button, Qt.MouseButton.LeftButton)


def main(moment: str) -> int:
    application = app.make_application(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        preferences = Preferences(Path(folder) / "settings.ini")
        folders = Folders(str(resources.folder()))
        window = app.make_window(application, preferences, folders, Diagnostics())
        hand = Hand(window, moment)
        window.show()
        QTimer.singleShot(0, hand.start)
        return application.exec()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
