"""A field for one number that takes any text and says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QValidator
from PySide6.QtWidgets import QAbstractSpinBox

from macapp.protocol import FieldError, format_number

if TYPE_CHECKING:
    from macapp.messages import Message
    from macapp.protocol import FieldInfo, Number


class NumberField(QAbstractSpinBox):
    """Arrows step as the hyperparameter's `FieldInfo` says; typing is never refused.

    Qt's own spin boxes silently correct what is typed; a person then trains with a number that
    they did not mean.
    """

    value_changed = Signal(object)
    """The text, a str, after any change."""

    def __init__(self, info: FieldInfo) -> None:
        """Show the default."""
        super().__init__()
        self._info = info
        self.setAccessibleName(str(info.title))
        self.set_value(info.default)  # type: ignore[arg-type]
        self.lineEdit().textChanged.connect(self._emit_change)

    def set_value(self, value: Number) -> None:
        """Show ``value``."""
        self.lineEdit().setText(format_number(value))

    def value(self) -> Number:
        """Return the number.

        Raises:
            FieldError: the text is no number, or not within the limits.
        """
        return self._info.parse(self.text())  # type: ignore[return-value]

    def problem(self) -> Message | None:
        """Return what is wrong with the text, or None."""
        try:
            self.value()
        except FieldError as error:
            return error.message
        return None

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        """Let everything be typed: what is wrong is said beside the field."""
        return (QValidator.State.Acceptable, text, position)

    def stepEnabled(self) -> QAbstractSpinBox.StepEnabledFlag:
        """Offer both arrows; at a limit they do nothing."""
        flag = QAbstractSpinBox.StepEnabledFlag
        return flag.StepUpEnabled | flag.StepDownEnabled

    def stepBy(self, steps: int) -> None:
        """Step from the number shown, or from the default if there is none."""
        try:
            start = float(self.text().replace(",", "."))
            self.set_value(self._info.stepped(start, steps))
        except (ValueError, OverflowError):  # no number, NaN, or infinity
            self.set_value(self._info.default)  # type: ignore[arg-type]

    def _emit_change(self, text: str) -> None:
        self.value_changed.emit(text)
