"""One line below Start: what the run would meet on its device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Slot
from PySide6.QtWidgets import QLabel

from macapp.faults import plain_operator
from macapp.trainer import Trainer, TrainerState
from macapp.ui import theme, words

if TYPE_CHECKING:
    from macapp.protocol import Inspection, TrainingConfig

DELAY_MS = 300
"""The settings must stand still for so long before the engine is asked."""


class RunPreview(QLabel):
    """Asks the engine when the settings change, while it has nothing else to do."""

    def __init__(self, trainer: Trainer) -> None:
        """Show nothing yet."""
        super().__init__()
        self.setWordWrap(True)
        self.setContentsMargins(0, 0, theme.SPACING, 0)
        self.setAccessibleName(self.tr("What this run would meet"))
        self._trainer = trainer
        self._config: TrainingConfig | None = None
        self._is_ready = False
        self._timer = QTimer(self, interval=DELAY_MS, singleShot=True)
        self._timer.timeout.connect(self._ask_now)
        trainer.inspected.connect(self._show)
        self.hide()

    @Slot(object)
    def set_config(self, config: TrainingConfig | None) -> None:
        """Follow the settings; None if they are wrong."""
        if config != self._config:
            self._config = config
            self.hide()
            self.ask()

    def set_state(self, state: TrainerState) -> None:
        """Ask only an engine that is idle: a run must not be held up."""
        was_ready, self._is_ready = self._is_ready, state is TrainerState.READY
        if self._is_ready and not was_ready:
            self.ask()

    def ask(self) -> None:
        """Ask soon."""
        self._timer.start()

    @Slot()
    def _ask_now(self) -> None:
        if self._is_ready and self._config is not None:
            self._trainer.inspect(self._config)

    @Slot(object)
    def _show(self, found: Inspection) -> None:
        if found.config != self._config:
            return  # the settings have changed meanwhile
        sentences = [*self._operators(found), *self._memory(found)]
        self.setText(" ".join(sentences))
        self.setVisible(bool(sentences))

    def _operators(self, found: Inspection) -> list[str]:
        if found.device != "mps":
            return []
        if not found.is_complete:
            return [self.tr("Which operators Metal lacks is not known here.")]
        if not found.on_cpu:
            return [self.tr("Metal has all operators of this run.")]
        names = ", ".join(dict.fromkeys(plain_operator("aten::" + name) for name in found.on_cpu))
        text = self.tr("Metal lacks operators of this run, which the CPU will compute: {names}.")
        return [text.format(names=names)]

    def _memory(self, found: Inspection) -> list[str]:
        if found.needed_bytes <= found.free_bytes:
            return []
        text = self.tr("⚠ A batch needs about {needed}, but {free} are free.").format(
            needed=words.memory(found.needed_bytes), free=words.memory(found.free_bytes)
        )
        if found.fitting_batch_size:
            text += " " + self.tr("A batch size of {size} fits.").format(
                size=words.number(found.fitting_batch_size)
            )
        return [text]
