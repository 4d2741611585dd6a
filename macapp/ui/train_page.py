"""The page Train: the plots, the epochs, the progress of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSplitter, QVBoxLayout, QWidget

from macapp.ui import theme
from macapp.ui.epoch_table import EpochTable
from macapp.ui.live_plot import AccuracyPlot, LossPlot
from macapp.ui.progress_panel import ProgressPanel

if TYPE_CHECKING:
    from macapp.protocol import EpochDone, JobStarted, StepsDone


class TrainPage(QWidget):
    """Shows one run as it happens, and keeps it shown until the next begins."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.loss_plot = LossPlot()
        self.accuracy_plot = AccuracyPlot()
        self.epoch_table = EpochTable()
        self.progress = ProgressPanel()
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
        split.addWidget(self.epoch_table)
        split.setSizes([480, 190])
        split.setChildrenCollapsible(False)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.SPACING)
        layout.addWidget(split, 1)
        layout.addWidget(self.progress)

    @Slot(object)
    def start(self, event: JobStarted) -> None:
        """Make room for a new run."""
        self.loss_plot.start(steps_per_epoch=event.steps_per_epoch, epochs=event.epochs)
        self.accuracy_plot.start(epochs=event.epochs)
        self.epoch_table.clear()
        self.progress.start(event)

    @Slot(object)
    def add_steps(self, event: StepsDone) -> None:
        """Show trained steps."""
        self.loss_plot.append(event)
        self.progress.add_steps(event)

    @Slot(object)
    def add_epoch(self, event: EpochDone) -> None:
        """Show a finished epoch."""
        self.loss_plot.append_epoch(event)
        self.accuracy_plot.append_epoch(event)
        self.epoch_table.append(event)
        self.progress.add_epoch(event)
