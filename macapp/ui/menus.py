"""The menu bar. Its actions are offered to the main window, which knows what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup, QKeySequence

if TYPE_CHECKING:
    from PySide6.QtWidgets import QMenu, QMenuBar

    from macapp.ui.theme import Appearance


class Menus(QObject):
    """File, Run, View and Help; on a Mac, Quit and About move into the app's own menu."""

    appearance_chosen = Signal(object)
    """An `Appearance`."""

    def __init__(self, bar: QMenuBar, appearance: Appearance) -> None:
        """Fill ``bar``; ``appearance`` is the one that is ticked."""
        super().__init__(bar)
        file_menu = bar.addMenu(self.tr("File"))
        self.save = _action(file_menu, self.tr("Save network…"), "Ctrl+S")
        self.quit = _action(file_menu, self.tr("Quit"), "Ctrl+Q")
        self.quit.setMenuRole(QAction.MenuRole.QuitRole)

        run_menu = bar.addMenu(self.tr("Run"))
        self.start = _action(run_menu, self.tr("Start"), "Ctrl+R")
        self.pause = _action(run_menu, self.tr("Pause"), "Ctrl+P")
        self.stop = _action(run_menu, self.tr("Stop"), "Ctrl+.")

        view_menu = bar.addMenu(self.tr("View"))
        self.fit = _action(view_menu, self.tr("Fit plots"), "Ctrl+0")
        appearance_menu = view_menu.addMenu(self.tr("Appearance"))
        group = QActionGroup(self)
        for name, text in (
            ("automatic", self.tr("Automatic")),
            ("light", self.tr("Light")),
            ("dark", self.tr("Dark")),
        ):
            action = _action(appearance_menu, text)
            action.setCheckable(True)
            action.setChecked(name == appearance)
            action.setData(name)
            group.addAction(action)
        group.triggered.connect(self._appearance_triggered)

        help_menu = bar.addMenu(self.tr("Help"))
        self.help = _action(help_menu, self.tr("How Metal works, and when it does not"))
        self.diagnostics = _action(help_menu, self.tr("Copy diagnostics"))
        self.about = _action(help_menu, self.tr("About Metal Trainer"))
        self.about.setMenuRole(QAction.MenuRole.AboutRole)

    @Slot(QAction)
    def _appearance_triggered(self, action: QAction) -> None:
        self.appearance_chosen.emit(action.data())


def _action(menu: QMenu, text: str, shortcut: str = "") -> QAction:
    action = menu.addAction(text)
    action.setShortcut(QKeySequence(shortcut))
    return action
