"""A bar at the top of the window: says what happened and what to do, and blocks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, Signal, Slot
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QToolButton,
    QVBoxLayout,
)

from macapp.ui import theme

if TYPE_CHECKING:
    from macapp.messages import Topic


class MessageBar(QFrame):
    """Hidden until there is something to say; the details are folded."""

    accepted = Signal(object)
    """The bar, when its action was chosen."""
    refused = Signal(object)
    """The bar, when it was closed instead."""
    help_requested = Signal(object)
    """The `Topic` that explains what is said."""

    def __init__(self) -> None:
        """Stay hidden."""
        super().__init__()
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self._what = QLabel(wordWrap=True)
        font = self._what.font()
        font.setBold(True)
        self._what.setFont(font)
        self._remedy = QLabel(wordWrap=True)
        for label in (self._what, self._remedy):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.action_button = QPushButton()
        self.action_button.clicked.connect(self._accept)
        self._fold = QToolButton()
        self._fold.setText(self.tr("Details"))
        self._fold.setCheckable(True)
        self._fold.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._fold.setArrowType(Qt.ArrowType.RightArrow)
        self._fold.setAutoRaise(True)
        self._fold.toggled.connect(self._unfold)
        self.copy_button = QPushButton(self.tr("Copy diagnostics"))
        self.copy_button.clicked.connect(self._copy_details)
        self.close_button = QPushButton(self.tr("Close"))
        self.close_button.clicked.connect(self._refuse)
        self.help_button = QPushButton(self.tr("Why?"))
        self.help_button.clicked.connect(self._ask_for_help)
        self._topic: Topic = ""
        self._details = QPlainTextEdit(readOnly=True)
        self._details.setMaximumHeight(160)
        self._details.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._details.setAccessibleName(self.tr("Details"))

        buttons = QHBoxLayout()
        buttons.addWidget(self._fold)
        buttons.addStretch()
        for button in (
            self.help_button,
            self.copy_button,
            self.action_button,
            self.close_button,
        ):
            buttons.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setSpacing(theme.SPACING // 2)
        for widget in (self._what, self._remedy):
            layout.addWidget(widget)
        layout.addLayout(buttons)
        layout.addWidget(self._details)
        self.hide()
        self._recolor()

    @property
    def text(self) -> str:
        """What is said, for tests and screen readers."""
        return f"{self._what.text()} {self._remedy.text()}"

    @property
    def details(self) -> str:
        """The folded part."""
        return str(self._details.toPlainText())

    def show_failure(
        self, what: str, remedy: str, details: str = "", *, topic: Topic = "", action: str = ""
    ) -> None:
        """Say what happened and what to do; offer an action that does it, if there is one."""
        self._show(what, remedy, details, action=action, close=self.tr("Close"), topic=topic)

    def ask(self, what: str, remedy: str, *, action: str, close: str) -> None:
        """Offer an action; `accepted` tells that it was chosen."""
        self._show(what, remedy, "", action=action, close=close)
        self.action_button.setFocus()

    def _show(
        self,
        what: str,
        remedy: str,
        details: str,
        *,
        action: str,
        close: str,
        topic: Topic = "",
    ) -> None:
        self._topic = topic
        self.help_button.setVisible(bool(topic))
        self._what.setText(what)
        self._remedy.setText(remedy)
        self._details.setPlainText(details)
        self._fold.setChecked(False)
        self._fold.setVisible(bool(details))
        self.copy_button.setVisible(bool(details))
        self._details.hide()
        self.action_button.setText(action)
        self.action_button.setVisible(bool(action))
        self.close_button.setText(close)
        self.setAccessibleName(what)
        self.setAccessibleDescription(remedy)
        self.show()

    def changeEvent(self, event: QEvent) -> None:
        """Follow a change between light and dark."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()

    def _recolor(self) -> None:
        palette = self._what.palette()
        color = theme.colors(self.palette()).error
        if palette.windowText().color().name() != color:
            palette.setColor(palette.ColorRole.WindowText, color)
            self._what.setPalette(palette)

    @Slot(bool)
    def _unfold(self, is_open: bool) -> None:
        self._fold.setArrowType(Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow)
        self._details.setVisible(is_open)

    @Slot()
    def _copy_details(self) -> None:
        QGuiApplication.clipboard().setText(f"{self.text}\n\n{self.details}\n")

    @Slot()
    def _refuse(self) -> None:
        self.hide()
        self.refused.emit(self)

    @Slot()
    def _ask_for_help(self) -> None:
        self.help_requested.emit(self._topic)

    @Slot()
    def _accept(self) -> None:
        self.hide()
        self.accepted.emit(self)
