from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from macapp.protocol import EpochDone, StepsDone
from macapp.ui.live_plot import SMOOTHING, AccuracyPlot, LossPlot

if TYPE_CHECKING:
    from pathlib import Path

    from pytestqt.qtbot import QtBot


def steps(first: int, losses: list[float]) -> StepsDone:
    return StepsDone(1, 1, first, np.array(losses, np.float32), 1.0)


def epoch(number: int, step: int, accuracy: float = 0.9) -> EpochDone:
    return EpochDone(1, number, step, 3.0, 20000.0, 0.5, 0.25, accuracy, 0.2)


@pytest.fixture
def plot(qtbot: QtBot) -> LossPlot:
    plot = LossPlot()
    qtbot.addWidget(plot)
    plot.resize(640, 400)
    plot.show()
    qtbot.waitExposed(plot)
    plot.start(steps_per_epoch=100, epochs=5)
    return plot


def test_what_is_appended_is_drawn(plot: LossPlot, qtbot: QtBot) -> None:
    plot.append(steps(1, [2.0, 1.0]))
    plot.append(steps(3, [0.5]))
    plot.append_epoch(epoch(1, 3))
    qtbot.waitUntil(lambda: plot._test_curve.getOriginalDataset()[0] is not None)
    x, y = plot._loss_curve.getOriginalDataset()
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(y, np.array([2.0, 1.0, 0.5], np.float32))
    assert plot._test_curve.getOriginalDataset()[1].tolist() == [0.25]


def test_the_mean_is_an_exponential_one_without_a_start_at_zero(plot: LossPlot) -> None:
    rng = np.random.default_rng(1)
    losses = rng.random(300)
    for first in range(0, 300, 7):
        plot.append(steps(first + 1, list(losses[first : first + 7])))
    weights = SMOOTHING ** np.arange(299, -1, -1)
    expected = float((weights * losses).sum() / weights.sum())
    assert plot._smoothed[299] == pytest.approx(expected, rel=1e-4)
    plot.start(steps_per_epoch=10, epochs=1)
    plot.append(steps(1, [3.0]))
    assert plot._smoothed[0] == pytest.approx(3.0)


def test_many_redraws_of_many_points(plot: LossPlot) -> None:
    """Canary for Qt bindings that lose references to None at each paint."""
    references = sys.getrefcount(None)
    for first in range(1, 20_001, 50):
        plot.append(steps(first, [1.0] * 50))
        plot.redraw()
        plot.viewport().repaint()
    assert plot.point_count == 20_000
    if sys.version_info < (3, 12):  # later, None does not count
        assert sys.getrefcount(None) > references - 1000


def test_the_picture_stands_still_and_grows_when_it_is_full(plot: LossPlot) -> None:
    plot.append(steps(1, [2.0]))
    plot.redraw()
    before = plot.getViewBox().viewRange()
    assert before[0][1] == pytest.approx(500, rel=0.05)
    plot.append(steps(2, [1.0] * 200))
    plot.redraw()
    assert plot.getViewBox().viewRange() == before
    plot.start(steps_per_epoch=100, epochs=100)
    plot.append(steps(1, [1.0] * 501))
    plot.redraw()
    assert plot.getViewBox().viewRange()[0][1] == pytest.approx(1000, rel=0.05)


def test_a_zoom_stays_until_fit(plot: LossPlot) -> None:
    plot.append(steps(1, [2.0] * 100))
    plot.redraw()
    view = plot.getViewBox()
    view.setRange(xRange=(10, 20), yRange=(0.5, 1.0), padding=0)
    view.sigRangeChangedManually.emit(view.state["mouseEnabled"])  # as a mouse drag ends
    zoomed = view.viewRange()
    plot.append(steps(101, [1.0] * 300))
    plot.redraw()
    assert view.viewRange() == zoomed
    plot.fit()
    assert view.viewRange()[0][1] > 400


def test_a_wheel_turn_is_a_zoom(plot: LossPlot, qtbot: QtBot) -> None:
    plot.append(steps(1, [2.0] * 100))
    plot.redraw()
    qtbot.mouseMove(plot.viewport())
    from PySide6.QtCore import QPoint
    from PySide6.QtGui import QWheelEvent

    center = QPointF(plot.viewport().rect().center())
    wheel = QWheelEvent(
        center,
        plot.viewport().mapToGlobal(center),
        QPoint(),
        QPoint(0, 240),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(plot.viewport(), wheel)
    assert not plot.follows_data


def test_the_pointer_shows_the_value(plot: LossPlot) -> None:
    plot.append(steps(1, [2.0, 1.5, 1.0]))
    plot.append_epoch(epoch(1, 3))
    assert plot.value_text(3.2) == (3.0, "step 3\nloss 1.0000\nsmoothed 1.4829\ntest 0.2500")
    plot.redraw()
    plot._show_value(plot.getViewBox().mapViewToScene(QPointF(2.0, 1.0)))
    assert plot._pointer_text.isVisible()
    assert "loss 1.5000" in plot._pointer_text.toPlainText()
    plot._show_value(QPointF(-100, -100))
    assert not plot._pointer_text.isVisible()


def test_not_a_number_does_not_break_the_plot(plot: LossPlot) -> None:
    plot.append(steps(1, [2.0, float("nan"), float("inf")]))
    plot.redraw()
    plot.viewport().repaint()
    assert np.isfinite(plot.fit_range()).all()


def test_export_as_picture_and_table(plot: LossPlot, tmp_path: Path) -> None:
    plot.append(steps(1, [2.0] * 5000))
    plot.append_epoch(epoch(1, 5000))
    plot.redraw()
    plot.save_png(tmp_path / "图 loss.png")
    picture = QImage(str(tmp_path / "图 loss.png"))
    assert picture.width() == 2 * plot.width()
    assert len({picture.pixel(x, picture.height() // 2) for x in range(picture.width())}) > 1
    plot.save_csv(tmp_path / "loss.csv")
    rows = list(csv.reader((tmp_path / "loss.csv").read_text().splitlines()))
    assert len(rows) == 5001  # every point, not what fits on the screen
    assert "each step_x" in rows[0][0]
    assert float(rows[1][1]) == 2.0


@pytest.mark.parametrize("save", ["_png_chosen", "_csv_chosen"])
def test_a_plot_that_cannot_be_saved_says_so(
    plot: LossPlot, qtbot: QtBot, tmp_path: Path, save: str
) -> None:
    with qtbot.waitSignal(plot.export_failed):
        getattr(plot, save)(str(tmp_path / "no such folder" / "x"))


def test_the_menu_offers_fit_and_exports(plot: LossPlot) -> None:
    assert [action.text() for action in plot._menu.actions()] == [
        "Fit",
        "Save as picture (PNG)…",
        "Save as table (CSV)…",
    ]


def test_accuracy_in_percent_over_epochs(qtbot: QtBot) -> None:
    plot = AccuracyPlot()
    qtbot.addWidget(plot)
    plot.start(epochs=5)
    plot.append_epoch(epoch(1, 100, 0.96))
    plot.append_epoch(epoch(2, 200, 0.975))
    assert plot._curve.getOriginalDataset()[1].tolist() == [96.0, 97.5]
    assert plot.value_text(1.6) == (2.0, "epoch 2\n97.50 % correct")
    (left, right), (bottom, top) = plot.fit_range()
    assert left < 1
    assert right > 5
    assert bottom < 96
    assert top > 97.5
