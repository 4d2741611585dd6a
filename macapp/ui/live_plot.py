"""The two plots of a run: loss at every step, accuracy at every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QTimer

from macapp.ui import words
from macapp.ui.chart import Chart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from macapp.protocol import EpochDone, StepsDone

REDRAW_MS = 33
"""At most 30 redraws a second, however often data comes."""
SMOOTHING = 0.95
"""Share of the old mean that stays at each step: a mean over about the last 20 steps."""


class LossPlot(Chart):
    """Loss of every step, its exponential moving mean, and the test loss of every epoch."""

    value_height = 0.45  # a loss falls steeply and then stays low

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.set_titles(
            self.tr("Loss"),
            self.tr("Training step (one batch each)"),
            self.tr("Loss (nats)"),
        )
        self._loss_curve = self.add_curve(self.tr("each step"), "loss")
        self._smoothed_curve = self.add_curve(self.tr("smoothed"), "smoothed")
        self._test_curve = self.add_curve(self.tr("test"), "test", symbols=True)
        self._redraw_timer = QTimer(self, interval=REDRAW_MS, singleShot=True)
        self._redraw_timer.timeout.connect(self.redraw)
        self._steps_per_epoch = 1
        self.start(steps_per_epoch=1, epochs=1)

    def start(self, *, steps_per_epoch: int, epochs: int) -> None:
        """Forget the last run; the time axis is laid out for the new one."""
        self._steps_per_epoch = steps_per_epoch
        self._total_steps = steps_per_epoch * epochs
        self._count = 0
        self._losses = np.empty(4096, np.float32)
        self._smoothed = np.empty(4096, np.float32)
        self._steps = np.arange(1, 4097, dtype=np.float32)
        self._mean = 0.0  # of the moving mean, before it is corrected for its start at 0
        self._highest = 0.0
        self._tests: list[tuple[int, float]] = []
        self.redraw()
        self.fit()

    def go_on(self, *, step: int, steps_per_epoch: int, epochs_left: int) -> None:
        """Forget what came after ``step``: the run goes on from there, perhaps in other steps."""
        self._count = min(step, self._count)
        self._steps_per_epoch = steps_per_epoch
        self._total_steps = step + steps_per_epoch * epochs_left
        self._mean = 0.0
        if self._count:
            # The inverse of the correction in `append`.
            self._mean = float(self._smoothed[self._count - 1]) * (1 - SMOOTHING**self._count)
        self._tests = [test for test in self._tests if test[0] <= self._count]
        # New arrays: the curves may still show views of the old, which must not be written again.
        self._losses, self._smoothed = self._losses.copy(), self._smoothed.copy()
        self._schedule_redraw()

    @property
    def point_count(self) -> int:
        """How many losses are held."""
        return self._count

    def append(self, event: StepsDone) -> None:
        """Take the losses of some steps; they are drawn at the next redraw."""
        end = self._count + len(event.losses)
        self._reserve(end)
        self._losses[self._count : end] = event.losses
        for index in range(self._count, end):
            self._mean = SMOOTHING * self._mean + (1 - SMOOTHING) * float(self._losses[index])
            self._smoothed[index] = self._mean / (1 - SMOOTHING ** (index + 1))
        self._highest = max(self._highest, _highest(event.losses))
        self._count = end
        self._schedule_redraw()

    def append_epoch(self, event: EpochDone) -> None:
        """Take the test loss of an epoch."""
        self._tests.append((event.step, event.test_loss))
        self._highest = max(self._highest, event.test_loss)
        self._schedule_redraw()

    def redraw(self) -> None:
        """Draw what is held: one setData a curve."""
        count = self._count
        # Views of the front of growing arrays: what was drawn is never written again.
        self._loss_curve.setData(self._steps[:count], self._losses[:count])
        self._smoothed_curve.setData(self._steps[:count], self._smoothed[:count])
        self._test_curve.setData(
            np.array([step for step, _ in self._tests], float),
            np.array([loss for _, loss in self._tests], float),
        )
        self.follow()

    def fit_range(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Show the whole run when it is short; else double the width as it fills.

        So the picture stands still while points are added.
        """
        width = 5 * self._steps_per_epoch
        while width < self._count:
            width *= 2
        # A little more on every side: the zeros are labelled, and the last marker is whole.
        right, top = float(min(width, self._total_steps)), self._highest or 1.0
        return (-0.01 * right, 1.02 * right), (-0.02 * top, 1.05 * top)

    def value_text(self, x: float) -> tuple[float, str] | None:
        """Return the losses at the step nearest to ``x``."""
        if not self._count:
            return None
        step = min(max(1, round(x)), self._count)
        text = self.tr("step {step}\nloss {loss}\nsmoothed {smoothed}").format(
            step=words.number(step),
            loss=words.number(float(self._losses[step - 1]), 4),
            smoothed=words.number(float(self._smoothed[step - 1]), 4),
        )
        at_step = [loss for test_step, loss in self._tests if test_step == step]
        if at_step:
            text += "\n" + self.tr("test {loss}").format(loss=words.number(at_step[0], 4))
        return float(step), text

    def _schedule_redraw(self) -> None:
        if not self._redraw_timer.isActive():
            self._redraw_timer.start()

    def _reserve(self, count: int) -> None:
        size = len(self._losses)
        if count <= size:
            return
        while size < count:
            size *= 2
        # New arrays, not resized ones: the curves still show views of the old.
        self._losses = _grown(self._losses, size)
        self._smoothed = _grown(self._smoothed, size)
        # float32 counts exactly up to 16.7 million steps.
        self._steps = np.arange(1, size + 1, dtype=np.float32)


class AccuracyPlot(Chart):
    """Share of the test pictures classified correctly after each epoch, in percent."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.set_titles(self.tr("Accuracy"), self.tr("Epoch"), self.tr("Test accuracy (%)"))
        self._curve = self.add_curve(self.tr("test"), "test", symbols=True)
        self._epochs = 1
        self._percents: list[float] = []
        self.start(epochs=1)

    def start(self, *, epochs: int) -> None:
        """Forget the last run."""
        self._epochs = epochs
        self._percents = []
        self.redraw()
        self.fit()

    def go_on(self, *, epochs_done: int) -> None:
        """Forget the epochs after that."""
        self._percents = self._percents[:epochs_done]
        self.redraw()

    def append_epoch(self, event: EpochDone) -> None:
        """Take the accuracy of an epoch."""
        self._percents.append(100 * event.test_accuracy)
        self.redraw()

    def redraw(self) -> None:
        """Draw what is held."""
        self._curve.setData(np.arange(1.0, len(self._percents) + 1), np.array(self._percents))
        self.follow()

    def fit_range(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Show all epochs, from a little below the lowest accuracy up to 100 %."""
        lowest = min(self._percents, default=0.0)
        bottom = max(0.0, lowest - 0.25 * (100 - lowest) - 0.2)
        return (0.5, max(self._epochs, 2) + 0.5), (bottom, 100.0)

    def value_text(self, x: float) -> tuple[float, str] | None:
        """Return the accuracy of the epoch nearest to ``x``."""
        if not self._percents:
            return None
        epoch = min(max(1, round(x)), len(self._percents))
        text = self.tr("epoch {epoch}\n{percent} % correct").format(
            epoch=epoch, percent=words.number(self._percents[epoch - 1], 2)
        )
        return float(epoch), text


def _grown(values: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    grown = np.empty(size, np.float32)
    grown[: len(values)] = values
    return grown


def _highest(losses: NDArray[np.float32]) -> float:
    finite = losses[np.isfinite(losses)]
    return float(finite.max()) if len(finite) else 0.0
