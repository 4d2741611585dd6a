"""A plot with a legend, values under the pointer, a zoom that stays, and export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyqtgraph as pg
from pyqtgraph.exporters import CSVExporter, ImageExporter
from PySide6.QtCore import QEvent, QPoint, QPointF, Signal, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from macapp.ui import theme

if TYPE_CHECKING:
    from pathlib import Path


class _ViewBox(pg.ViewBox):  # type: ignore[misc]
    """pyqtgraph's view, with our own menu and a plain left-button drag to zoom."""

    menu_requested = Signal(object)
    """The global position, a QPoint."""

    def __init__(self) -> None:
        super().__init__(enableMenu=False)
        self.setMouseMode(pg.ViewBox.RectMode)

    def mouseClickEvent(self, event: Any) -> None:
        """Offer the menu on a right click."""
        if event.button() is pg.QtCore.Qt.MouseButton.RightButton:
            event.accept()
            self.menu_requested.emit(QPoint(*(int(value) for value in event.screenPos())))


class _WholeNumberAxis(pg.AxisItem):  # type: ignore[misc]
    """Counts things: has no ticks between whole numbers, however far one zooms in."""

    def tickSpacing(self, low: float, high: float, size: float) -> list[tuple[float, float]]:
        """Return pyqtgraph's (spacing, offset) pairs, those below 1 left out."""
        levels = [level for level in super().tickSpacing(low, high, size) if level[0] >= 1]
        return levels or [(1.0, 0.0)]


class Chart(pg.PlotWidget):  # type: ignore[misc]
    """The base of our plots. Ranges follow the data until the user zooms, and again after "Fit"."""

    export_failed = Signal(object)
    """The reason, a str: the file could not be written."""

    value_height = 0.04
    """Where the text under the pointer ends, as a share of the height: away from the data."""
    _is_built = False

    def __init__(self) -> None:
        """Draw empty axes."""
        self._view = _ViewBox()
        super().__init__(
            viewBox=self._view, axisItems={"bottom": _WholeNumberAxis(orientation="bottom")}
        )
        self._labels = {"bottom": "", "left": ""}
        self.follows_data = True
        self.hideButtons()
        for axis in (self.getAxis("left"), self.getAxis("bottom")):
            # Only the main grid lines: the translucent fine ones took 4 of the 6 ms of a paint.
            axis.setStyle(maxTickLevel=0)
        self._legend = self.addLegend(offset=(-8, 8))
        self._curves: list[tuple[pg.PlotDataItem, str, bool]] = []

        self._pointer_line = pg.InfiniteLine(angle=90, movable=False)
        self._pointer_line.hide()
        self.addItem(self._pointer_line, ignoreBounds=True)
        self._pointer_text = pg.TextItem(anchor=(0, 0))
        self._pointer_text.hide()
        self.addItem(self._pointer_text, ignoreBounds=True)

        self._fit_action = QAction(self.tr("Fit"), self)
        self._fit_action.triggered.connect(self.fit)
        self._png_action = QAction(self.tr("Save as picture (PNG)…"), self)
        self._png_action.triggered.connect(self._ask_for_png)
        self._csv_action = QAction(self.tr("Save as table (CSV)…"), self)
        self._csv_action.triggered.connect(self._ask_for_csv)
        self._menu = QMenu(self)
        self._menu.addActions([self._fit_action, self._png_action, self._csv_action])

        self._view.menu_requested.connect(self._show_menu)
        self._view.sigRangeChangedManually.connect(self._keep_zoom)
        self.scene().sigMouseMoved.connect(self._show_value)
        self._is_built = True

    def set_titles(self, name: str, x_label: str, y_label: str) -> None:
        """Name the chart and its axes.

        Args:
            name: what screen readers call it, and the suggested name of exported files.
            x_label: what runs to the right, with its unit.
            y_label: what runs up, with its unit.
        """
        self.setAccessibleName(name)
        self._labels = {"bottom": x_label, "left": y_label}
        self._recolor()

    def add_curve(self, name: str, color: str, *, symbols: bool = False) -> pg.PlotDataItem:
        """Add an empty curve, drawn in the theme's colour called ``color``."""
        options: dict[str, Any] = {"symbol": "o", "symbolSize": 8} if symbols else {}
        curve = self.plot(name=name, **options)
        if not symbols:
            # Set on the curve after it was added: the plot overrides earlier settings.
            curve.setDownsampling(auto=True, method="peak")
            curve.setClipToView(True)
        self._curves.append((curve, color, symbols))
        self._recolor()
        return curve

    def value_text(self, x: float) -> tuple[float, str] | None:
        """Return the position and the text for the data nearest to ``x``; None if there is none."""
        raise NotImplementedError

    def fit_range(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the ((x from, to), (y from, to)) that shows all data."""
        raise NotImplementedError

    def follow(self) -> None:
        """Show all data, unless the user has zoomed."""
        if not self.follows_data:
            return
        x_range, y_range = self.fit_range()
        if self._view.viewRange() != [list(x_range), list(y_range)]:
            self._view.setRange(xRange=x_range, yRange=y_range, padding=0)

    @Slot()
    def fit(self) -> None:
        """Show all data, now and as it comes."""
        self.follows_data = True
        self.follow()

    def save_png(self, path: Path) -> None:
        """Write the plot as a picture, twice as sharp as on the screen.

        Raises:
            OSError: the file cannot be written.
        """
        exporter = ImageExporter(self.plotItem)
        exporter.parameters()["width"] = 2 * self.width()
        picture = exporter.export(toBytes=True)
        if not picture.save(str(path), "PNG"):
            raise OSError(f"{path}: cannot be written")

    def save_csv(self, path: Path) -> None:
        """Write every point of every curve.

        Raises:
            OSError: the file cannot be written.
        """
        CSVExporter(self.plotItem).export(str(path))

    def changeEvent(self, event: QEvent) -> None:
        """Follow a change between light and dark."""
        super().changeEvent(event)
        # pyqtgraph changes the palette while it builds itself.
        if event.type() == QEvent.Type.PaletteChange and self._is_built:
            self._recolor()

    def leaveEvent(self, event: QEvent) -> None:
        """Hide the value when the pointer leaves."""
        super().leaveEvent(event)
        self._hide_value()

    def _recolor(self) -> None:
        colors = theme.colors(self.palette())
        self.setBackground(colors.plot_background)
        for side, label in self._labels.items():
            axis = self.getAxis(side)
            axis.setPen(colors.axis)
            axis.setTextPen(colors.axis)
            axis.setLabel(label, color=colors.axis)
        self.showGrid(x=True, y=True, alpha=colors.grid_alpha)
        self._legend.setLabelTextColor(colors.axis)
        self._pointer_line.setPen(colors.muted)
        self._pointer_text.setColor(colors.axis)
        self._pointer_text.fill = pg.mkBrush(colors.plot_background)
        zoom_color = pg.mkColor(colors.smoothed)
        self._view.rbScaleBox.setPen(zoom_color)
        zoom_color.setAlpha(48)
        self._view.rbScaleBox.setBrush(zoom_color)
        for curve, color, symbols in self._curves:
            pen = getattr(colors, color)
            curve.setPen(pen)  # width 1 and no antialiasing: wider ones paint 100 times slower
            if symbols:
                curve.setSymbolBrush(pen)
                curve.setSymbolPen(pen)
                # The legend asks the scatter plot, which else learns of it with the first point.
                curve.scatter.setBrush(pen)
                curve.scatter.setPen(pen)

    @Slot(object)
    def _keep_zoom(self, _axes: object) -> None:
        self.follows_data = False

    @Slot(object)
    def _show_value(self, position: QPointF) -> None:
        if not self._view.sceneBoundingRect().contains(position):
            self._hide_value()
            return
        found = self.value_text(self._view.mapSceneToView(position).x())
        if found is None:
            self._hide_value()
            return
        x, text = found
        (left, right), (bottom, top) = self._view.viewRange()
        self._pointer_line.setPos(x)
        self._pointer_line.show()
        # Beside the line, on the side with more room.
        self._pointer_text.setAnchor((0, 1) if x < (left + right) / 2 else (1, 1))
        self._pointer_text.setText(text)
        self._pointer_text.setPos(x, bottom + self.value_height * (top - bottom))
        self._pointer_text.show()

    def _hide_value(self) -> None:
        self._pointer_line.hide()
        self._pointer_text.hide()

    @Slot(object)
    def _show_menu(self, position: QPoint) -> None:
        self._menu.popup(position)

    @Slot()
    def _ask_for_png(self) -> None:
        self._ask(self.tr("Save as picture"), ".png", self._png_chosen)

    @Slot()
    def _ask_for_csv(self) -> None:
        self._ask(self.tr("Save as table"), ".csv", self._csv_chosen)

    def _ask(self, title: str, suffix: str, chosen: Any) -> None:
        dialog = QFileDialog(self.window() or QWidget(), title)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(suffix[1:])
        dialog.selectFile(self.accessibleName() + suffix)
        dialog.setAttribute(pg.QtCore.Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(chosen)
        dialog.open()  # returns at once: training and drawing go on

    @Slot(str)
    def _png_chosen(self, path: str) -> None:
        self._save(self.save_png, path)

    @Slot(str)
    def _csv_chosen(self, path: str) -> None:
        self._save(self.save_csv, path)

    def _save(self, save: Any, path: str) -> None:
        from pathlib import Path

        try:
            save(Path(path))
        except OSError as error:
            self.export_failed.emit(str(error))
