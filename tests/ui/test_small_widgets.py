from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QApplication

from macapp.machine import Gpu, Machine
from macapp.messages import Message
from macapp.protocol import DeviceStatus, EpochDone, JobStarted, StepsDone, TrainingConfig
from macapp.ui import theme, words
from macapp.ui.device_panel import DevicePanel
from macapp.ui.epoch_table import EpochTable
from macapp.ui.preferences import Preferences
from macapp.ui.progress_panel import TimeLeft

if TYPE_CHECKING:
    from pathlib import Path

    from pytestqt.qtbot import QtBot


def epoch(number: int) -> EpochDone:
    return EpochDone(1, number, number * 100, 3.5, 17000.0, 0.5, 0.25, 0.9612, 0.5)


def test_epochs_are_copied_for_a_spreadsheet(qtbot: QtBot) -> None:
    table = EpochTable()
    qtbot.addWidget(table)
    table.append(epoch(1))
    table.append(epoch(2))
    table.show()
    table.setFocus()
    qtbot.keyClick(table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    table.copy()
    lines = QApplication.clipboard().text().splitlines()
    assert lines[0] == "Epoch\tSeconds\tImages/s\tTrain loss\tTest loss\tAccuracy"
    assert lines[1:] == ["1\t3.5\t17000\t0.5\t0.25\t0.9612", "2\t3.5\t17000\t0.5\t0.25\t0.9612"]
    table.selectRow(1)
    table.copy()
    assert QApplication.clipboard().text().splitlines()[1:] == [lines[2]]


def test_the_table_shows_percent(qtbot: QtBot) -> None:
    table = EpochTable()
    qtbot.addWidget(table)
    table.append(epoch(1))
    model = table.epoch_model
    texts = [model.data(model.index(0, column)) for column in range(model.columnCount())]
    assert texts[1:] == ["3.50", "17000", "0.5000", "0.2500", "96.12 %"]
    table.keep(0)
    assert model.rowCount() == 0


def test_time_left_counts_steps_and_test_passes() -> None:
    left = TimeLeft(JobStarted(1, "cpu", 21840, 100, 3))
    assert left.seconds is None
    left.add_steps(StepsDone(1, 1, 1, np.zeros(50, np.float32), 2.0))
    assert left.seconds == pytest.approx(10.0)  # 250 steps of 0.04 s
    assert left.fraction == pytest.approx(1 / 6)
    left.add_epoch(epoch(1))  # 100 steps took 3.5 s, a test pass 0.5 s
    assert left.seconds == pytest.approx(7.0 + 1.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (41.4, "41 s"), (185, "3 min 05 s"), (7830, "2 h 10 min"), (-1, "0 s")],
)
def test_durations_read_like_speech(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


# What Qt says, or does not, about a binary value that is none.
@pytest.mark.qt_log_ignore("Trying to construct an instance of an invalid type")
def test_preferences_survive_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "settings.ini"
    for text in (
        "",
        "\x00\xff garbage [[[",
        "[General]\nconfig=not json\nappearance=pink\ngeometry=7\n",
        '[General]\nconfig="{\\"epochs\\": 0}"\n',
        '[General]\nconfig="{\\"unknown\\": 1}"\n',
        "[General]\nconfig=@Variant(nonsense)\n",
    ):
        path.write_text(text, encoding="utf-8")
        preferences = Preferences(path)
        assert preferences.config == TrainingConfig()
        assert preferences.appearance == "automatic"
        assert preferences.geometry.isEmpty()


def test_preferences_are_read_back(tmp_path: Path) -> None:
    preferences = Preferences(tmp_path / "new folder" / "settings.ini")
    preferences.config = TrainingConfig(learning_rate=0.125, optimizer="adamw")
    preferences.appearance = "dark"
    assert preferences.save()
    again = Preferences(preferences.path)
    assert again.config == TrainingConfig(learning_rate=0.125, optimizer="adamw")
    assert again.appearance == "dark"


def machine(**changes: object) -> Machine:
    computer = Machine(
        processor="Apple M3",
        model="Mac15,3",
        architecture="arm64",
        is_apple_silicon=True,
        is_translated=False,
        is_virtual=False,
        physical_cores=8,
        logical_cores=8,
        performance_cores=4,
        efficiency_cores=4,
        memory_bytes=16 * 2**30,
        system="macOS",
        system_version="15.6",
        gpus=(Gpu(name="Apple M3", cores=10, metal="Metal 3", vendor="Apple"),),
        python_version="3.11.7",
    )
    return msgspec.structs.replace(computer, **changes)


def test_the_card_of_an_apple_chip(qtbot: QtBot) -> None:
    panel = DevicePanel()
    qtbot.addWidget(panel)
    panel.show_machine(machine())
    assert panel._processor.text() == "Apple M3"
    assert panel._cores.text() == (
        "4 performance and 4 efficiency cores · GPU with 10 cores, Metal 3"
    )
    assert panel._system.text() == "macOS 15.6 · 16 GB memory"
    panel.show_machine(machine(is_translated=True))
    assert "Rosetta" in panel._processor.text()


@pytest.mark.parametrize(
    ("metal", "text"),
    [
        ("Metal 4", "Radeon, Metal 4"),
        ("supported", "Radeon, Metal"),
        ("not supported", "Radeon, no Metal"),
        ("", "Radeon"),
    ],
)
def test_the_card_tells_what_the_system_says_of_metal(qtbot: QtBot, metal: str, text: str) -> None:
    panel = DevicePanel()
    qtbot.addWidget(panel)
    panel.show_machine(machine(gpus=(Gpu(name="Radeon", metal=metal),)))
    assert panel._cores.text().endswith(f" · {text}")


def test_a_verdict_has_its_details_at_hand(qtbot: QtBot) -> None:
    panel = DevicePanel()
    qtbot.addWidget(panel)
    status = DeviceStatus(
        "mps", "macos_too_old", Message("Too old."), Message("Update macOS."), "torch 2.14.1"
    )
    panel.show_devices((status,))
    assert panel._reasons["mps"].text() == "Too old.\nUpdate macOS."
    assert panel._reasons["mps"].toolTip() == "torch 2.14.1"


def test_the_card_of_a_computer_that_tells_nothing(qtbot: QtBot) -> None:
    panel = DevicePanel()
    qtbot.addWidget(panel)
    panel.show_machine(
        machine(
            processor="",
            gpus=(),
            memory_bytes=0,
            system="",
            system_version="",
            physical_cores=0,
            performance_cores=0,
        )
    )
    assert panel._processor.text() == "Unknown processor"
    assert panel._cores.text() == ""
    assert panel._system.text() == ""


def test_text_can_be_read_on_its_background() -> None:
    for dark in (False, True):
        palette = theme._palette(dark=dark)
        assert theme.is_dark(palette) == dark
        colors = theme.colors(palette)
        window = palette.color(QPalette.ColorRole.Window)
        for name in ("muted", "error", "good"):
            assert _contrast(getattr(colors, name), window.name()) >= 4.5, (dark, name)
        for name in ("axis", "smoothed", "test"):
            assert _contrast(getattr(colors, name), colors.plot_background) >= 3, (dark, name)


def _contrast(first: str, second: str) -> float:
    """WCAG 2.2 contrast ratio."""

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
