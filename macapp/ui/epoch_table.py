"""The table of finished epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Slot,
)
from PySide6.QtGui import QAction, QFont, QGuiApplication, QKeySequence
from PySide6.QtWidgets import QHeaderView, QTableView

from macapp.ui import words

if TYPE_CHECKING:
    from macapp.protocol import EpochDone

_Index = QModelIndex | QPersistentModelIndex


class EpochModel(QAbstractTableModel):
    """One row an epoch."""

    def __init__(self, parent: QObject | None = None) -> None:
        """Start empty."""
        super().__init__(parent)
        self._rows: list[EpochDone] = []
        self.titles = (
            self.tr("Epoch"),
            self.tr("Seconds"),
            self.tr("Images/s"),
            self.tr("Train loss"),
            self.tr("Test loss"),
            self.tr("Accuracy"),
        )

    @property
    def epochs(self) -> tuple[EpochDone, ...]:
        """The rows, first epoch first."""
        return tuple(self._rows)

    def append(self, event: EpochDone) -> None:
        """Add a row."""
        count = len(self._rows)
        self.beginInsertRows(QModelIndex(), count, count)
        self._rows.append(event)
        self.endInsertRows()

    def keep(self, count: int) -> None:
        """Remove all rows but the first ``count``."""
        self.beginResetModel()
        del self._rows[count:]
        self.endResetModel()

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008
        """Return the number of epochs."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self.titles)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return a column's title."""
        if orientation == Qt.Orientation.Horizontal:
            if role == Qt.ItemDataRole.DisplayRole:
                return self.titles[section]
            if role == Qt.ItemDataRole.TextAlignmentRole:
                return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell, as text for the user or aligned to the right."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        row = self._rows[index.row()]
        if role == Qt.ItemDataRole.ToolTipRole and row.slept and index.column() in (1, 2):
            return self.tr("The computer slept during this epoch: do not compare its time.")
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        mark = " *" if row.slept else ""
        return (
            words.number(row.epoch),
            words.number(row.seconds, 2) + mark,
            words.number(row.images_per_second) + mark,
            words.number(row.train_loss, 4),
            words.number(row.test_loss, 4),
            self.tr("{percent} %").format(percent=words.number(100 * row.test_accuracy, 2)),
        )[index.column()]

    def spreadsheet(self, rows: list[int]) -> str:
        """Return rows with their titles as a spreadsheet takes them.

        Tabs between cells, full precision, a point as decimal sign; accuracy as a share of 1.
        """
        lines = ["\t".join(self.titles)]
        for row in (self._rows[index] for index in rows):
            cells = (
                row.epoch,
                f"{row.seconds:.6g}",
                f"{row.images_per_second:.6g}",
                f"{row.train_loss:.8g}",
                f"{row.test_loss:.8g}",
                f"{row.test_accuracy:.6g}",
            )
            lines.append("\t".join(str(cell) for cell in cells))
        return "\n".join(lines) + "\n"


class EpochTable(QTableView):
    """Shows the epochs; selected rows, or else all, can be copied."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.epoch_model = EpochModel(self)
        self.setModel(self.epoch_model)
        self.setAccessibleName(self.tr("Epochs"))
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(self.fontMetrics().height() + 8)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        self.horizontalHeader().setHighlightSections(False)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        copy = QAction(self.tr("Copy"), self)
        copy.setShortcut(QKeySequence.StandardKey.Copy)
        copy.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        copy.triggered.connect(self.copy)
        self.addAction(copy)
        # Digits of one width, so that columns stand still as numbers change.
        font = self.font()
        font.setFeature(QFont.Tag("tnum"), 1)
        self.setFont(font)

    def append(self, event: EpochDone) -> None:
        """Add an epoch and show it."""
        self.epoch_model.append(event)
        self.scrollToBottom()

    def keep(self, count: int) -> None:
        """Remove all epochs but the first ``count``."""
        self.epoch_model.keep(count)

    @Slot()
    def copy(self) -> None:
        """Copy the selected rows, or all if none is selected, with their titles."""
        selected = sorted(index.row() for index in self.selectionModel().selectedRows())
        rows = selected or list(range(self.epoch_model.rowCount()))
        QGuiApplication.clipboard().setText(self.epoch_model.spreadsheet(rows))
