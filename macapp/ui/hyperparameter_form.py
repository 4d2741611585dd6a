"""The form, built from the fields of `TrainingConfig`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QGridLayout,
    QLabel,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from macapp.protocol import PRESETS, FieldError, TrainingConfig, fields, format_number
from macapp.ui import theme, words
from macapp.ui.number_field import NumberField

if TYPE_CHECKING:
    from collections.abc import Iterable

    from macapp.messages import Message
    from macapp.protocol import DeviceStatus, FieldInfo, Number

CUSTOM = "custom"


class _Field(QObject):
    """One hyperparameter: label, editor, unit, reset, and a line that says what is wrong."""

    changed = Signal(object)
    """The name of the hyperparameter, a str."""
    focused = Signal(object)
    """The `FieldInfo`, when the editor gets the keyboard."""

    def __init__(self, info: FieldInfo, parent: QWidget) -> None:
        super().__init__(parent)
        self.info = info
        self.editor: NumberField | QComboBox
        if info.kind == "choice":
            self.editor = QComboBox()
            for choice in info.choices:
                self.editor.addItem(words.choice(choice), choice)
            self.editor.currentIndexChanged.connect(self._editor_changed)
        else:
            self.editor = NumberField(info)
            self.editor.value_changed.connect(self._editor_changed)
        self.editor.setAccessibleName(words.translated(info.title))
        self.editor.setAccessibleDescription(help_text(info))
        self.editor.setToolTip(help_text(info))
        self.editor.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.editor.setMinimumWidth(110)
        self.editor.installEventFilter(self)
        self.label = QLabel(words.translated(info.title))
        self.label.setBuddy(self.editor)
        self.label.setToolTip(help_text(info))
        self.unit = QLabel(words.translated(info.unit) if info.unit else "")
        self.reset = QToolButton()
        self.reset.setText("↺")
        self.reset.setAutoRaise(True)
        self.reset.setAccessibleName(
            self.tr("Reset {field}").format(field=words.translated(info.title))
        )
        size = self.reset.sizePolicy()
        size.setRetainSizeWhenHidden(True)  # nothing moves when it comes and goes
        self.reset.setSizePolicy(size)
        self.error = QLabel()
        self.error.setWordWrap(True)
        self.error.hide()

    def value(self) -> str | int | float:
        """Return the value; FieldError if there is none."""
        if isinstance(self.editor, NumberField):
            return self.editor.value()
        return str(self.editor.currentData())

    def set_value(self, value: str | int | float) -> None:
        if isinstance(self.editor, NumberField):
            self.editor.set_value(value)  # type: ignore[arg-type]
        else:
            self.editor.setCurrentIndex(self.editor.findData(value))

    def problem(self) -> Message | None:
        return self.editor.problem() if isinstance(self.editor, NumberField) else None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Tell when the editor gets the keyboard; leave wheel turns to the page."""
        if event.type() == QEvent.Type.FocusIn:
            self.focused.emit(self.info)
        if event.type() == QEvent.Type.Wheel and not self.editor.hasFocus():
            event.ignore()  # scrolling past must not change a setting
            return True
        return super().eventFilter(watched, event)

    @Slot()
    def _editor_changed(self, *_value: object) -> None:
        self.changed.emit(self.info.name)


class HyperparameterForm(QWidget):
    """All settings of a run. What is wrong is said at its field, and then nothing can start."""

    changed = Signal(object)
    """The `TrainingConfig`, or None while something is wrong."""

    def __init__(self, config: TrainingConfig | None = None) -> None:
        """Show ``config``, by default the preset "Article"."""
        super().__init__()
        self._preset = QComboBox()
        self._preset.setAccessibleName(self.tr("Preset"))
        for name in (*PRESETS, CUSTOM):
            self._preset.addItem(words.choice(name), name)
        self._preset.currentIndexChanged.connect(self._preset_chosen)
        self._base = PRESETS["article"]
        self._is_filling = False

        grid = QGridLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(theme.SPACING)
        grid.setVerticalSpacing(theme.SPACING // 2)
        grid.setColumnStretch(1, 1)
        preset_label = QLabel(self.tr("Preset"))
        preset_label.setBuddy(self._preset)
        grid.addWidget(preset_label, 0, 0)
        grid.addWidget(self._preset, 0, 1)
        self._fields = {info.name: _Field(info, self) for info in fields()}
        for index, field in enumerate(self._fields.values()):
            row = 1 + 2 * index
            grid.addWidget(field.label, row, 0)
            grid.addWidget(field.editor, row, 1)
            grid.addWidget(field.unit, row, 2)
            grid.addWidget(field.reset, row, 3)
            grid.addWidget(field.error, row + 1, 0, 1, 4)
            field.changed.connect(self._field_changed)
            field.focused.connect(self._show_help)
            field.reset.clicked.connect(self._reset_clicked)
        self._help = QLabel()
        self._help.setWordWrap(True)
        self._help.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._help.setMinimumHeight(4 * self.fontMetrics().lineSpacing())

        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.SPACING)
        layout.addLayout(grid)
        layout.addWidget(self._help)
        self._recolor()
        self.set_config(config or PRESETS["article"])
        self._show_help(fields()[0])

    def config(self) -> TrainingConfig | None:
        """Return what is shown, or None while a field is wrong."""
        try:
            values = {name: field.value() for name, field in self._fields.items()}
        except FieldError:
            return None
        return TrainingConfig(**values)  # type: ignore[arg-type]

    def set_config(self, config: TrainingConfig) -> None:
        """Show ``config``."""
        self._is_filling = True
        for name, field in self._fields.items():
            field.set_value(getattr(config, name))
        self._is_filling = False
        self._refresh()

    def set_devices(self, devices: Iterable[DeviceStatus]) -> None:
        """Grey out the devices that cannot train here, and say why."""
        editor = self._fields["device"].editor
        assert isinstance(editor, QComboBox)
        ready = [status.kind for status in devices if status.ready]
        if ready:
            text = self.tr("{automatic}: {device}")
            text = text.format(automatic=words.choice("auto"), device=words.choice(ready[0]))
            editor.setItemText(editor.findData("auto"), text)
        for status in devices:
            index = editor.findData(status.kind)
            item = editor.model().item(index)  # type: ignore[attr-defined]
            item.setEnabled(status.ready)
            item.setToolTip(words.translated(status.reason))

    def changeEvent(self, event: QEvent) -> None:
        """Follow a change between light and dark."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()

    def _recolor(self) -> None:
        colors = theme.colors(self.palette())
        for field in self._fields.values():
            _color_text(field.error, colors.error)
            _color_text(field.unit, colors.muted)
        _color_text(self._help, colors.muted)

    @Slot()
    def _preset_chosen(self) -> None:
        name = self._preset.currentData()
        if self._is_filling or name == CUSTOM:
            return
        self._base = PRESETS[name]
        # Where it runs, and its random numbers, are no part of a preset.
        kept = {
            name: self._fields[name].value()
            for name in ("device", "seed")
            if self._fields[name].problem() is None
        }
        self.set_config(msgspec.structs.replace(self._base, **kept))

    @Slot()
    def _reset_clicked(self) -> None:
        for name, field in self._fields.items():
            if field.reset is self.sender():
                field.set_value(getattr(self._base, name))

    @Slot(object)
    def _field_changed(self, _name: str) -> None:
        if not self._is_filling:
            self._refresh()

    @Slot(object)
    def _show_help(self, info: FieldInfo) -> None:
        self._help.setText(help_text(info))

    def _refresh(self) -> None:
        """Show what is wrong, which preset this is, and what could be reset."""
        config = self.config()
        for name, field in self._fields.items():
            problem = field.problem()
            field.error.setText(words.translated(problem) if problem else "")
            field.error.setVisible(problem is not None)
            is_default = problem is None and field.value() == getattr(self._base, name)
            field.reset.setVisible(not is_default)
            field.reset.setToolTip(
                self.tr("Back to {value}").format(value=_shown(getattr(self._base, name)))
            )
        uses_momentum = self._fields["optimizer"].value() == "sgd"
        for widget in ("label", "editor", "unit"):
            getattr(self._fields["momentum"], widget).setEnabled(uses_momentum)
        self._is_filling = True
        preset = _preset_of(config) if config else CUSTOM
        if preset != CUSTOM:
            self._base = PRESETS[preset]
        self._preset.setCurrentIndex(self._preset.findData(preset))
        self._is_filling = False
        self.changed.emit(config)


def help_text(info: FieldInfo) -> str:
    """Return the sentence of help for a field, with its limits."""
    text = words.translated(info.help)
    if info.kind != "choice":
        text += " " + QCoreApplication.translate(
            "HyperparameterForm", "From {minimum} to {maximum}."
        ).format(minimum=format_number(info.minimum), maximum=format_number(info.maximum))
    return text


def _preset_of(config: TrainingConfig) -> str:
    """Return the preset that ``config`` is, device and seed left aside, or "custom"."""
    for name, preset in PRESETS.items():
        if msgspec.structs.replace(preset, device=config.device, seed=config.seed) == config:
            return name
    return CUSTOM


def _shown(value: str | Number) -> str:
    return words.choice(value) if isinstance(value, str) else format_number(value)


def _color_text(label: QLabel, color: str) -> None:
    palette = label.palette()
    palette.setColor(palette.ColorRole.WindowText, color)
    label.setPalette(palette)
