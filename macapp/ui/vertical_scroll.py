"""A scroll area that is no higher than what it holds."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QScrollArea, QSizePolicy, QWidget


class VerticalScroll(QScrollArea):
    """Is as high as its content, and scrolls when there is less room."""

    def __init__(self, content: QWidget) -> None:
        """Hold ``content``."""
        super().__init__(widgetResizable=True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setWidget(content)

    def sizeHint(self) -> QSize:
        """Return the size of the content."""
        content = self.widget()
        return content.sizeHint() if content is not None else super().sizeHint()

    def minimumSizeHint(self) -> QSize:
        """Return a size that never hides a part of the width."""
        hint = super().minimumSizeHint()
        content = self.widget()
        if content is not None:
            bar = self.verticalScrollBar().sizeHint().width()
            hint.setWidth(content.minimumSizeHint().width() + bar)
        return hint

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the content when it grows or shrinks."""
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)
