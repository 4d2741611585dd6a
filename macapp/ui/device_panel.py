"""The device card: what this computer is, and what on it can train."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
)

from macapp import machine
from macapp.ui import theme, words

if TYPE_CHECKING:
    from macapp.machine import Machine
    from macapp.protocol import DeviceKind, DeviceStatus, EngineReady

MEMORY_INTERVAL_MS = 2000
DEVICE_KINDS: tuple[DeviceKind, ...] = ("mps", "cuda", "cpu")


class DevicePanel(QFrame):
    """Facts appear as they become known; what is not known yet shows as "…"."""

    test_requested = Signal(object)
    """None: the GPU is to be tested again."""
    copy_requested = Signal(object)
    """None: the diagnostics are to be put on the clipboard."""

    def __init__(self) -> None:
        """Show that everything is being found out."""
        super().__init__()
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName(self.tr("This computer"))
        is_mac = sys.platform == "darwin"
        title = QLabel(self.tr("This Mac") if is_mac else self.tr("This computer"))
        font = title.font()
        font.setBold(True)
        title.setFont(font)
        self._processor = _fact()
        self._cores = _fact()
        self._system = _fact()
        self._versions = _fact(self.tr("Preparing PyTorch…"))
        self._memory = QProgressBar(textVisible=False, maximum=1000)
        self._memory.setMaximumHeight(theme.SPACING)
        self._memory.setAccessibleName(self.tr("Memory in use"))
        self._memory_text = _fact()

        layout = QVBoxLayout(self)
        layout.setSpacing(theme.SPACING // 2)
        for widget in (title, self._processor, self._cores, self._system, self._versions):
            layout.addWidget(widget)
        self._device_grid = QGridLayout()
        self._device_grid.setColumnStretch(2, 1)
        self._device_grid.setHorizontalSpacing(theme.SPACING)
        self._device_grid.setVerticalSpacing(theme.SPACING // 4)
        self._marks: dict[DeviceKind, QLabel] = {}
        self._reasons: dict[DeviceKind, QLabel] = {}
        self._ready: dict[DeviceKind, bool] = {}
        for row, kind in enumerate(DEVICE_KINDS):
            self._marks[kind] = QLabel("…")
            self._reasons[kind] = _fact("…")
            self._device_grid.addWidget(
                QLabel(words.choice(kind)), row, 0, Qt.AlignmentFlag.AlignTop
            )
            self._device_grid.addWidget(self._marks[kind], row, 1, Qt.AlignmentFlag.AlignTop)
            self._device_grid.addWidget(self._reasons[kind], row, 2)
        layout.addLayout(self._device_grid)
        self.test_button = QPushButton(self.tr("Test again"))
        self.test_button.setToolTip(
            self.tr("Compare the GPU with the CPU once more; takes some seconds")
        )
        self.test_button.clicked.connect(self._test_clicked)
        self.test_button.hide()
        self.copy_button = QPushButton(self.tr("Copy diagnostics"))
        self.copy_button.setToolTip(
            self.tr("Put computer, versions and the last errors on the clipboard, without names")
        )
        self.copy_button.clicked.connect(self._copy_clicked)
        self._may_test = self._is_testing = False
        buttons = QHBoxLayout()
        buttons.addWidget(self.test_button)
        buttons.addWidget(self.copy_button)
        buttons.addStretch()
        layout.addLayout(buttons)
        layout.addWidget(self._memory)
        layout.addWidget(self._memory_text)

        self._memory_timer = QTimer(self, interval=MEMORY_INTERVAL_MS)
        self._memory_timer.timeout.connect(self.show_memory)
        self._memory_timer.start()
        self.show_memory()

    def show_machine(self, computer: Machine) -> None:
        """Show what this computer is; what is unknown stays away."""
        self._processor.setText(computer.processor or self.tr("Unknown processor"))
        cores = []
        if computer.performance_cores:
            text = self.tr("{performance} performance and {efficiency} efficiency cores")
            cores.append(
                text.format(
                    performance=computer.performance_cores, efficiency=computer.efficiency_cores
                )
            )
        elif computer.physical_cores:
            cores.append(words.cores(computer.physical_cores))
        for gpu in computer.gpus:
            name = "GPU" if gpu.name in ("", computer.processor) else gpu.name
            if gpu.cores:
                name = self.tr("{gpu} with {cores}").format(gpu=name, cores=words.cores(gpu.cores))
            # The article's own check: the line "Metal" of system_profiler SPDisplaysDataType.
            said = {"supported": "Metal", "not supported": self.tr("no Metal"), "": ""}
            if metal := said.get(gpu.metal, gpu.metal):
                name += f", {metal}"
            cores.append(name)
        self._cores.setText(" · ".join(cores))
        system = f"{computer.system} {computer.system_version}".strip()
        if computer.memory_bytes:
            system += self.tr(" · {size} GB memory").format(
                size=words.gigabytes(computer.memory_bytes)
            )
        self._system.setText(system)
        if computer.is_translated:
            self._processor.setText(
                self.tr("{chip}, but this Python runs translated by Rosetta").format(
                    chip=computer.processor
                )
            )

    def show_engine(self, event: EngineReady) -> None:
        """Show PyTorch's version, and for each device whether it is ready and why."""
        self._versions.setText(f"PyTorch {event.versions.torch}")
        self.show_devices(event.devices)

    def show_devices(self, devices: tuple[DeviceStatus, ...]) -> None:
        """Show for each device whether it is ready, and if not, why and what to do."""
        for status in devices:
            self._show_device(status)
        verdicts = {status.kind: status.verdict for status in devices}
        self.test_button.setVisible(verdicts.get("mps", "not_here") != "not_here")
        self._is_testing = "checking" in verdicts.values()
        self._refresh_button()

    def allow_test(self, is_allowed: bool) -> None:
        """Allow a test while no job runs."""
        self._may_test = is_allowed
        self._refresh_button()

    def _refresh_button(self) -> None:
        self.test_button.setEnabled(self._may_test and not self._is_testing)

    @Slot()
    def _test_clicked(self) -> None:
        self._reasons["mps"].setText(self.tr("Being tested…"))
        self._is_testing = True
        self._refresh_button()
        self.test_requested.emit(None)

    @Slot()
    def _copy_clicked(self) -> None:
        self.copy_requested.emit(None)

    def _show_device(self, status: DeviceStatus) -> None:
        self._ready[status.kind] = status.ready
        self._marks[status.kind].setText("✔" if status.ready else "–")
        self._marks[status.kind].setAccessibleName(
            self.tr("ready") if status.ready else self.tr("not ready")
        )
        text = words.translated(status.reason)
        if status.remedy is not None:
            text += "\n" + words.translated(status.remedy)
        self._reasons[status.kind].setText(text)
        self._reasons[status.kind].setToolTip(status.details)
        self._recolor()

    @Slot()
    def show_memory(self) -> None:
        """Show how much memory all programs together use."""
        used, total = machine.memory_in_use()
        if not total:
            self._memory_text.setText(self.tr("Memory in use: unknown"))
            return
        self._memory.setValue(1000 * used // total)
        text = self.tr("{used} of {total} GB memory in use")
        self._memory_text.setText(
            text.format(used=words.number(used / 2**30, 1), total=words.gigabytes(total))
        )

    def changeEvent(self, event: QEvent) -> None:
        """Follow a change between light and dark."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._recolor()

    def _recolor(self) -> None:
        colors = theme.colors(self.palette())
        for kind, mark in self._marks.items():
            palette = mark.palette()
            color = colors.good if self._ready.get(kind) else colors.muted
            palette.setColor(palette.ColorRole.WindowText, color)
            mark.setPalette(palette)


def _fact(text: str = "…") -> QLabel:
    label = QLabel(text)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
