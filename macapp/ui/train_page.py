"""The page Train: the plots, the epochs, the progress of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSplitter, QVBoxLayout, QWidget

from macapp.ui import theme
from macapp.ui.epoch_table import EpochTable
from macapp.ui.live_plot import AccuracyPlot, LossPlot
from macapp.ui.notices import Notices
from macapp.ui.progress_panel import ProgressPanel
from macapp.ui.readings_panel import ReadingsPanel
from macapp.ui.vertical_scroll import VerticalScroll

if TYPE_CHECKING:
    from macapp.protocol import BatchHalved, EpochDone, JobStarted, StepsDone


class TrainPage(QWidget):
    """Shows one run as it happens, and keeps it shown until the next begins."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.loss_plot = LossPlot()
        self.accuracy_plot = AccuracyPlot()
        self.epoch_table = EpochTable()
        self.progress = ProgressPanel()
        self.readings = ReadingsPanel()
        self.notices = Notices()
        self._epochs = 1
        fit = QPushButton(self.tr("Fit"))
        fit.setToolTip(self.tr("Show all data again after zooming"))
        fit.clicked.connect(self.loss_plot.fit)
        fit.clicked.connect(self.accuracy_plot.fit)

        plots = QSplitter(Qt.Orientation.Horizontal)
        plots.addWidget(self.loss_plot)
        plots.addWidget(self.accuracy_plot)
        plots.setSizes([640, 360])
        plots.setChildrenCollapsible(False)
        fit_row = QHBoxLayout()
        fit_row.addStretch()
        fit_row.addWidget(fit)
        top = QWidget()
        top_layout = QVBoxLayout(top)
        top_layout.setContentsMargins(0, 0, 0, 0)
        top_layout.setSpacing(theme.SPACING // 2)
        top_layout.addWidget(plots, 1)
        top_layout.addLayout(fit_row)
        split = QSplitter(Qt.Orientation.Vertical)
        split.addWidget(top)
        bottom = QSplitter(Qt.Orientation.Horizontal)
        bottom.addWidget(self.epoch_table)
        bottom.addWidget(VerticalScroll(self.readings))
        bottom.setSizes([640, 360])
        bottom.setChildrenCollapsible(False)
        split.addWidget(bottom)
        split.setSizes([480, 190])
        split.setChildrenCollapsible(False)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.SPACING)
        layout.addWidget(split, 1)
        layout.addWidget(self.notices)
        layout.addWidget(self.progress)

    @Slot(object)
    def start(self, event: JobStarted) -> None:
        """Make room for a new run."""
        self.notices.clear()
        self.readings.start(event.device)
        done = event.first_epoch - 1
        if done:
            self._go_on(event.first_step - 1, done, event.steps_per_epoch, event.epochs - done)
        else:
            self.loss_plot.start(steps_per_epoch=event.steps_per_epoch, epochs=event.epochs)
            self.accuracy_plot.start(epochs=event.epochs)
            self.epoch_table.keep(0)
        self._epochs = event.epochs
        self.progress.start(event)

    @Slot(object)
    def halve_batch(self, event: BatchHalved) -> None:
        """Take back the steps of the epoch that begins anew."""
        done = event.epoch - 1
        self._go_on(event.step, done, event.steps_per_epoch, self._epochs - done)
        self.progress.halve_batch(event)

    def _go_on(self, step: int, epochs_done: int, steps_per_epoch: int, epochs_left: int) -> None:
        self.loss_plot.go_on(step=step, steps_per_epoch=steps_per_epoch, epochs_left=epochs_left)
        self.accuracy_plot.go_on(epochs_done=epochs_done)
        self.epoch_table.keep(epochs_done)

    @Slot(object)
    def add_steps(self, event: StepsDone) -> None:
        """Show trained steps."""
        self.loss_plot.append(event)
        self.readings.set_device_memory(event.memory)
        self.progress.add_steps(event)

    @Slot(object)
    def add_epoch(self, event: EpochDone) -> None:
        """Show a finished epoch."""
        self.loss_plot.append_epoch(event)
        self.accuracy_plot.append_epoch(event)
        self.epoch_table.append(event)
        self.progress.add_epoch(event)
