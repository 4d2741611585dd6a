"""The app tries itself: opens its window, presses Start as a user would, and reports."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import psutil
from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton

from macapp import __version__, app
from macapp.diagnostics import Diagnostics
from macapp.protocol import EpochDone, StepsDone, Versions
from macapp.ui.live_plot import LossPlot
from macapp.ui.preferences import Preferences

if TYPE_CHECKING:
    from macapp.messages import Failure
    from macapp.protocol import EngineReady, JobEnded, JobFailed, TrainingConfig
    from macapp.ui.main_window import MainWindow
    from macapp.ui.theme import Appearance

HEARTBEAT_MS = 10
"""The gap reported is the time between two beats, this interval included."""
BUSY_POINTS = 200_000
FRAMES = 50
TIMEOUT_SECONDS = 600


class Report(msgspec.Struct, kw_only=True):
    """What the self-test writes. Times are seconds, gaps milliseconds."""

    ok: bool = False
    problems: list[str] = []
    window_shown_seconds: float | None = None
    """From the start of the process to the first paint."""
    engine_ready_seconds: float | None = None
    """From the start of the process until PyTorch can train."""
    epoch_seconds: list[float] = []
    test_accuracy: float | None = None
    event_loop_gap_ms: dict[str, float] = {}
    """p50, p99 and max of the time between two heartbeats while training and plotting."""
    plotted_points: int = 0
    frames_per_second_at_200000_points: float | None = None
    torch_in_window_process: bool = False
    frozen: bool = False
    versions: Versions | None = None
    metal_trainer: str = __version__
    screenshots: list[str] = []


def run(
    *,
    device: str,
    epochs: int,
    screenshots: Path | None,
    appearance: Appearance,
    size: tuple[int, int],
) -> Report:
    """Open the window, train, close it again, and return what was seen.

    Args:
        device: what to train on, as in `TrainingConfig`.
        epochs: how many epochs of the preset "Article" to train.
        screenshots: the folder for a PNG of every page, or None.
        appearance: light, dark, or as the system is.
        size: width and height of the window in pixels.
    """
    application = app.make_application(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder, app.make_folders() as folders:
        # Settings of its own: the test must neither depend on the user's nor change them.
        preferences = Preferences(Path(folder) / "settings.ini")
        preferences.appearance = appearance
        window = app.make_window(application, preferences, folders, Diagnostics())
        window.resize(*size)
        test = SelfTest(window, device=device, epochs=epochs, screenshots=screenshots)
        report = test.run(application)
    report.ok = not report.problems
    return report


class SelfTest(QObject):
    """Drives the real window by its own buttons, one step after the other."""

    def __init__(
        self, window: MainWindow, *, device: str, epochs: int, screenshots: Path | None
    ) -> None:
        """Prepare to train ``epochs`` epochs on ``device``."""
        super().__init__()
        self._window = window
        self._device, self._epochs, self._screenshots = device, epochs, screenshots
        self._report = Report(frozen=bool(getattr(sys, "frozen", False)))
        self._process_start = time.monotonic() - _process_age_seconds()
        self._beats: list[float] = []
        self._is_training = False
        self._heartbeat = QTimer(self, interval=HEARTBEAT_MS)
        self._heartbeat.setTimerType(Qt.TimerType.PreciseTimer)
        self._heartbeat.timeout.connect(self._beat)
        self._trainer = window.trainer
        self._trainer.engine_ready.connect(self._engine_ready)
        self._trainer.engine_lost.connect(self._engine_lost)
        self._trainer.epoch_done.connect(self._epoch_done)
        self._trainer.steps_done.connect(self._steps_done)
        self._trainer.job_ended.connect(self._job_ended)
        self._trainer.job_failed.connect(self._job_failed)

    def run(self, application: QApplication) -> Report:
        """Show the window, wait for the end of the run, and return what was seen."""
        self._window.show()
        while not self._window.isActiveWindow() and not self._window.windowHandle().isExposed():
            application.processEvents()
        self._window.repaint()
        self._report.window_shown_seconds = self._since_start()
        QTimer.singleShot(0, self._window.start_services)
        QTimer.singleShot(1000 * TIMEOUT_SECONDS, self._time_out)
        application.exec()
        self._window.close()
        self._report.torch_in_window_process = "torch" in sys.modules
        if self._report.torch_in_window_process:
            self._report.problems.append("torch was loaded into the window process")
        return self._report

    def _since_start(self) -> float:
        return round(time.monotonic() - self._process_start, 3)

    def _fail(self, problem: str) -> None:
        self._report.problems.append(problem)
        QApplication.exit()

    @Slot()
    def _time_out(self) -> None:
        self._fail(f"not finished after {TIMEOUT_SECONDS} s")

    @Slot(object)
    def _engine_ready(self, event: EngineReady) -> None:
        if self._report.engine_ready_seconds is not None:
            return
        self._report.engine_ready_seconds = self._since_start()
        self._report.versions = event.versions
        self._window.form.set_config(_config(self._device, self._epochs))
        QTimer.singleShot(0, self._press_start)

    @Slot()
    def _press_start(self) -> None:
        button: QPushButton = self._window.start_button
        if not button.isEnabled():
            self._fail("Start could not be pressed")
            return
        self._is_training = True
        self._heartbeat.start()
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)

    @Slot()
    def _beat(self) -> None:
        self._beats.append(time.perf_counter())

    @Slot(object)
    def _steps_done(self, event: StepsDone) -> None:
        self._report.plotted_points += len(event.losses)

    @Slot(object)
    def _epoch_done(self, event: EpochDone) -> None:
        self._report.epoch_seconds.append(round(event.seconds, 3))
        self._report.test_accuracy = event.test_accuracy

    @Slot(object)
    def _engine_lost(self, failure: Failure) -> None:
        self._fail(f"{failure.what} {failure.details}")

    @Slot(object)
    def _job_failed(self, event: JobFailed) -> None:
        self._fail(f"{event.failure.what} {event.failure.details}")

    @Slot(object)
    def _job_ended(self, _event: JobEnded) -> None:
        self._heartbeat.stop()
        gaps = 1000 * np.diff(self._beats)
        if len(gaps):
            self._report.event_loop_gap_ms = {
                "p50": round(float(np.percentile(gaps, 50)), 2),
                "p99": round(float(np.percentile(gaps, 99)), 2),
                "max": round(float(gaps.max()), 2),
            }
        plot = self._window.train_page.loss_plot
        if plot.point_count != self._report.plotted_points:
            self._report.problems.append("the plot holds other points than were sent")
        if len(self._report.epoch_seconds) != self._epochs:
            self._report.problems.append("an epoch is missing")
        QTimer.singleShot(100, self._finish)

    @Slot()
    def _finish(self) -> None:
        self._save_screenshots()
        self._report.frames_per_second_at_200000_points = _frames_per_second()
        QApplication.exit()

    def _save_screenshots(self) -> None:
        if self._screenshots is None:
            return
        for index in range(self._window.pages.count()):
            self._window.sidebar.setCurrentRow(index)
            QApplication.processEvents()
            name = self._window.sidebar.item(index).text().lower().replace(" ", "-")
            path = self._screenshots / f"{index + 1}-{name}.png"
            if not self._window.grab().save(str(path)):
                self._report.problems.append(f"{path} could not be written")
            self._report.screenshots.append(path.name)


def _process_age_seconds() -> float:
    """Return how long this process exists.

    On Linux psutil counts from a boot time in whole seconds, so there the kernel's own clocks
    are compared: field 22 of /proc/self/stat, in ticks since boot (man 5 proc).
    """
    if sys.platform == "linux":
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[22 - 3]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    return time.time() - psutil.Process().create_time()


def _config(device: str, epochs: int) -> TrainingConfig:
    from macapp.protocol import PRESETS

    return msgspec.structs.replace(PRESETS["article"], device=device, epochs=epochs)


def _frames_per_second() -> float:
    """Return how often a loss plot of 200,000 points is redrawn a second while points come."""
    plot = LossPlot()
    plot.resize(800, 500)
    plot.start(steps_per_epoch=BUSY_POINTS // 4, epochs=5)
    random = np.random.default_rng(0)
    losses = random.exponential(0.2, BUSY_POINTS).astype(np.float32)
    plot.append(StepsDone(0, 1, 1, losses, 1.0))
    plot.show()
    QApplication.processEvents()
    started = time.perf_counter()
    for frame in range(FRAMES):
        first = BUSY_POINTS + 10 * frame + 1
        plot.append(StepsDone(0, 1, first, losses[:10], 1.0))
        plot.redraw()
        plot.viewport().repaint()
    rate = FRAMES / (time.perf_counter() - started)
    plot.close()
    return round(rate, 1)
