"""The page Help: how Metal acceleration works, and what to do when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QLocale
from PySide6.QtWidgets import QTextBrowser

if TYPE_CHECKING:
    from pathlib import Path

    from macapp.messages import Topic


class HelpPage(QTextBrowser):
    """One text with a chapter for each topic; links in it stay in it."""

    def __init__(self, folder: Path) -> None:
        """Read the text of the user's language from ``folder``, else the English one."""
        super().__init__()
        self.setAccessibleName(self.tr("Help"))
        self.setOpenExternalLinks(True)
        languages = [QLocale().name(), QLocale().name().partition("_")[0], "en"]
        for language in languages:
            try:
                self.setHtml((folder / f"{language}.html").read_text(encoding="utf-8"))
                return
            except OSError:
                continue
        self.setPlainText(self.tr("The help text is missing. Install Metal Trainer again."))

    def show_topic(self, topic: Topic) -> None:
        """Scroll to a chapter."""
        self.scrollToAnchor(topic)
