"""Live readings of the computer while a job runs: numbers, each with a small curve."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QSize, Qt, QThread, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from macapp.readings import Reader, Readings
from macapp.ui import theme, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from macapp.protocol import DeviceKind, DeviceMemory

INTERVAL_MS = 1000
HISTORY = 120
"""Two minutes of readings."""


class ReadingsReader(QThread):
    """Takes a reading a second until it is stopped; never touches torch."""

    taken = Signal(object)
    """`Readings`."""

    def __init__(self, engine_pid: Callable[[], int], parent: QWidget | None = None) -> None:
        """Ask ``engine_pid`` each time which process to look at."""
        super().__init__(parent)
        self._engine_pid = engine_pid

    def run(self) -> None:
        """Read, tell, wait."""
        reader = Reader()
        while not self.isInterruptionRequested():
            self.taken.emit(reader.read(self._engine_pid()))
            for _ in range(INTERVAL_MS // 50):
                if self.isInterruptionRequested():
                    return
                self.msleep(50)

    def stop(self) -> None:
        """End soon; `wait` tells when."""
        self.requestInterruption()


class Sparkline(QWidget):
    """A curve of the last readings, as high as its highest."""

    def __init__(self, top: float = 0.0) -> None:
        """Start empty; ``top`` is the least height of the scale."""
        super().__init__()
        self._values: deque[float | None] = deque(maxlen=HISTORY)
        self._top = top
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    @property
    def values(self) -> list[float | None]:
        """What is drawn, oldest first; None is a gap."""
        return list(self._values)

    def sizeHint(self) -> QSize:
        """Be as high as a line of text."""
        return QSize(8 * theme.SPACING, self.fontMetrics().height())

    def append(self, value: float | None) -> None:
        """Add a reading."""
        self._values.append(value)
        self.update()

    def clear(self) -> None:
        """Forget all."""
        self._values.clear()
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the curve from the right edge, where now is."""
        known = [value for value in self._values if value is not None]
        top = max([self._top, *known]) or 1.0
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(theme.colors(self.palette()).smoothed), 1.5))
        width, height = self.width() - 2, self.height() - 3
        previous: QPointF | None = None
        for index, value in enumerate(reversed(self._values)):
            if value is None:
                previous = None
                continue
            x = 1 + width * (1 - index / (HISTORY - 1))
            point = QPointF(x, 1.5 + height * (1 - value / top))
            if previous is not None:
                painter.drawLine(previous, point)
            previous = point
        painter.end()


class ReadingsPanel(QFrame):
    """What `Readings` and the engine's own memory say; unknown is shown as unknown."""

    def __init__(self) -> None:
        """Show that nothing runs."""
        super().__init__()
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName(self.tr("Live readings"))
        layout = QVBoxLayout(self)
        layout.setSpacing(theme.SPACING // 2)
        self._grid = QGridLayout()
        self._grid.setColumnStretch(2, 1)
        self._grid.setHorizontalSpacing(theme.SPACING)
        self._grid.setVerticalSpacing(theme.SPACING // 4)
        layout.addLayout(self._grid)
        self.values: dict[str, QLabel] = {}
        self.curves: dict[str, Sparkline] = {}
        for name, title, top, meaning in (
            ("gpu", self.tr("GPU use"), 100.0, self.tr("Of the busiest GPU")),
            ("cpu", self.tr("CPU use"), 100.0, self.tr("Of all cores together")),
            ("allocated", self.tr("GPU tensors"), 0.0, self.tr("GPU memory that numbers fill")),
            ("reserved", self.tr("GPU in all"), 0.0, self.tr("GPU memory taken from the system")),
            ("process", self.tr("Engine"), 0.0, self.tr("Memory of the training engine")),
            ("swap", self.tr("Swap"), float(2**30), self.tr("Memory moved to the disk")),
        ):
            row = self._grid.rowCount()
            label = QLabel(title)
            label.setToolTip(meaning)
            self.values[name] = QLabel("–")
            self.values[name].setAlignment(Qt.AlignmentFlag.AlignRight)
            self.values[name].setToolTip(meaning)
            self.curves[name] = Sparkline(top)
            self._grid.addWidget(label, row, 0)
            self._grid.addWidget(self.values[name], row, 1)
            self._grid.addWidget(self.curves[name], row, 2)
        self.state = QLabel(self.tr("Readings are taken while a job runs."))
        self.state.setWordWrap(True)
        layout.addWidget(self.state)
        layout.addStretch()
        self._device_memory: DeviceMemory | None = None
        self._has_gpu_memory = True

    def set_running(self, is_running: bool) -> None:
        """Dim the last readings of a job that is over: they are no longer true."""
        for label in self.values.values():
            label.setEnabled(is_running)
        self.state.setEnabled(is_running)

    def start(self, device: DeviceKind) -> None:
        """Forget the last job; the next one runs on ``device``."""
        self._device_memory = None
        self._has_gpu_memory = device != "cpu"
        for curve in self.curves.values():
            curve.clear()

    def set_device_memory(self, memory: DeviceMemory | None) -> None:
        """Take what the engine said; it is shown with the next reading."""
        self._device_memory = memory

    @Slot(object)
    def show_readings(self, readings: Readings) -> None:
        """Show a reading."""
        memory = self._device_memory
        self._show("gpu", readings.gpu_percent, words.percent)
        self._show("cpu", readings.cpu_percent, words.percent)
        self._show("allocated", memory.allocated if memory else None, words.memory)
        self._show("reserved", memory.reserved if memory else None, words.memory)
        self._show("process", readings.process_bytes, words.memory)
        self._show("swap", readings.swap_bytes, words.memory)
        self.state.setText(self._state_text(readings))

    def _show(self, name: str, value: float | None, text: Callable[[float], str]) -> None:
        unknown = self.tr("unknown")
        if name in ("allocated", "reserved") and not self._has_gpu_memory:
            unknown = self.tr("not used")
        self.values[name].setText(unknown if value is None else text(value))
        self.curves[name].append(value)

    def _state_text(self, readings: Readings) -> str:
        power = readings.power
        unknown = self.tr("unknown")
        source = {None: unknown, True: self.tr("battery"), False: self.tr("mains")}
        switch = {None: unknown, True: self.tr("on"), False: self.tr("off")}
        levels = {
            None: unknown,
            "nominal": self.tr("normal"),
            "normal": self.tr("normal"),
            "fair": self.tr("raised"),
            "warning": self.tr("high"),
            "serious": self.tr("high"),
            "critical": self.tr("critical"),
        }
        text = self.tr(
            "Power: {source} · Low Power Mode: {low} · Heat: {heat} · Memory pressure: {pressure}"
        ).format(
            source=source[power.on_battery],
            low=switch[power.low_power],
            heat=levels[power.thermal],
            pressure=levels[readings.pressure],
        )
        if power.speed_limit_percent is not None and power.speed_limit_percent < 100:
            text += self.tr(" · CPU slowed to {percent} %").format(
                percent=power.speed_limit_percent
            )
        if readings.gpu_resets:
            text += self.tr(" · GPU resets since the start: {count}").format(
                count=readings.gpu_resets
            )
        return text
