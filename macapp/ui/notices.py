"""What the owner of a run should know of it, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout

from macapp.ui import theme, words

if TYPE_CHECKING:
    from macapp.messages import Message, Topic
    from macapp.protocol import RunNotice


class Notices(QFrame):
    """Hidden while there is nothing to say; a notice replaces the earlier one of its kind."""

    help_requested = Signal(object)
    """A `Topic`."""

    def __init__(self) -> None:
        """Say nothing."""
        super().__init__()
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName(self.tr("Notices"))
        self._layout = QVBoxLayout(self)
        self._layout.setSpacing(theme.SPACING // 2)
        self._labels: dict[str, QLabel] = {}
        self.hide()

    @property
    def texts(self) -> dict[str, str]:
        """What is said, by kind."""
        return {kind: str(label.property("plain")) for kind, label in self._labels.items()}

    def clear(self) -> None:
        """Say nothing any more."""
        for label in self._labels.values():
            self._layout.removeWidget(label)
            label.deleteLater()
        self._labels.clear()
        self.hide()

    @Slot(object)
    def take(self, notice: RunNotice) -> None:
        """Say what a run's notice says."""
        self.say(notice.kind, notice.message, notice.topic)

    def say(self, kind: str, message: Message, topic: Topic = "") -> None:
        """Say something, with a link to its chapter of the Help page."""
        if kind not in self._labels:
            label = QLabel(wordWrap=True)
            label.setTextFormat(Qt.TextFormat.RichText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextBrowserInteraction)
            label.linkActivated.connect(self._link_activated)
            self._labels[kind] = label
            self._layout.addWidget(label)
        text = words.translated(message)
        self._labels[kind].setProperty("plain", text)
        sign = "⚠ " if kind == "garbage" else "• "
        link = f' <a href="{topic}">{self.tr("Why?")}</a>' if topic else ""
        self._labels[kind].setText(sign + _escaped(text) + link)
        self.show()

    def withdraw(self, kind: str) -> None:
        """Say it no more."""
        label = self._labels.pop(kind, None)
        if label is not None:
            self._layout.removeWidget(label)
            label.deleteLater()
        self.setVisible(bool(self._labels))

    @Slot(str)
    def _link_activated(self, topic: str) -> None:
        self.help_requested.emit(topic)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
