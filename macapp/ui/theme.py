"""Colours, light and dark."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication, QPalette

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication, QPushButton

Appearance: TypeAlias = Literal["automatic", "light", "dark"]
SPACING = 8
"""The grid, in pixels: every gap is this or a multiple of it."""


@dataclass(frozen=True)
class Colors:
    """What is drawn by hand. Lines differ in lightness too, for eyes that see no hue."""

    plot_background: str
    axis: str
    grid_alpha: float
    loss: str
    """One step each: faint, since there are thousands. Opaque, since blending is slow."""
    smoothed: str
    test: str
    error: str
    muted: str
    good: str


# Blue, vermilion and green of the Okabe-Ito palette, told apart with any colour vision.
LIGHT = Colors(
    plot_background="#ffffff",
    axis="#4a4f57",
    grid_alpha=0.12,
    loss="#c5d7e8",
    smoothed="#0072b2",
    test="#d55e00",
    error="#b3261e",
    muted="#626871",
    good="#00734f",
)
DARK = Colors(
    plot_background="#1b1d20",
    axis="#b9bfc7",
    grid_alpha=0.16,
    loss="#36536b",
    smoothed="#56b4e9",
    test="#f0894a",
    error="#ff8a80",
    muted="#9aa1ab",
    good="#4fd1a1",
)


def colors(palette: QPalette) -> Colors:
    """Return the colours that fit a palette."""
    return DARK if is_dark(palette) else LIGHT


def is_dark(palette: QPalette) -> bool:
    """Return whether text is lighter than its background."""
    text, window = palette.windowText().color(), palette.window().color()
    return text.lightness() > window.lightness()


def apply(app: QApplication, appearance: Appearance) -> None:
    """Make the whole app light, dark, or as the system is.

    macOS draws its own style and palette; elsewhere Fusion gets ours.
    """
    scheme = {
        "automatic": Qt.ColorScheme.Unknown,
        "light": Qt.ColorScheme.Light,
        "dark": Qt.ColorScheme.Dark,
    }[appearance]
    hints = QGuiApplication.styleHints()
    hints.setColorScheme(scheme)
    if sys.platform == "darwin":
        return
    app.setStyle("Fusion")
    dark = scheme is Qt.ColorScheme.Dark or (
        scheme is Qt.ColorScheme.Unknown and hints.colorScheme() is Qt.ColorScheme.Dark
    )
    app.setPalette(_palette(dark=dark))


def make_primary(button: QPushButton) -> None:
    """Make a button stand out as what to do next."""
    button.setMinimumHeight(4 * SPACING)
    if sys.platform == "darwin":
        button.setDefault(True)  # macOS then draws it in the user's accent colour
        return
    role, group = QPalette.ColorRole, QPalette.ColorGroup
    palette = button.palette()
    for which in (group.Active, group.Inactive):
        palette.setColor(which, role.Button, QColor("#0a5796"))
        palette.setColor(which, role.ButtonText, QColor("#ffffff"))
    button.setPalette(palette)


def _palette(*, dark: bool) -> QPalette:
    role = QPalette.ColorRole
    if dark:
        window, base, raised, text, accent = "#25282c", "#1b1d20", "#33373d", "#e8eaed", "#3d8fd1"
        disabled, mid = "#7d848d", "#3f444b"
    else:
        window, base, raised, text, accent = "#f3f4f6", "#ffffff", "#fbfbfc", "#1d2126", "#0a6cbd"
        disabled, mid = "#9aa0a8", "#cfd3d8"
    palette = QPalette(QColor(raised), QColor(window))
    for which, color in (
        (role.Window, window),
        (role.Base, base),
        (role.AlternateBase, window),
        (role.Button, raised),
        (role.WindowText, text),
        (role.Text, text),
        (role.ButtonText, text),
        (role.ToolTipBase, base),
        (role.ToolTipText, text),
        (role.PlaceholderText, disabled),
        (role.Highlight, accent),
        (role.HighlightedText, "#ffffff"),
        (role.Link, accent),
        (role.Mid, mid),
    ):
        palette.setColor(which, QColor(color))
    for which in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, QColor(disabled))
    palette.setColor(QPalette.ColorGroup.Disabled, role.Highlight, QColor(mid))
    return palette
