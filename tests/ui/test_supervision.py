"""What looks after a run, each part for itself: real Qt events, no engine."""

from __future__ import annotations

import os
import typing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from PySide6.QtCore import QLocale, QObject, Signal
from PySide6.QtTest import QTest

import macapp.resources
from macapp.messages import Message, Topic
from macapp.protocol import (
    CheckpointSaved,
    DeviceMemory,
    Inspection,
    JobStarted,
    RunNotice,
    TrainingConfig,
)
from macapp.readings import Power, Readings
from macapp.trainer import TrainerState
from macapp.ui.help_page import HelpPage
from macapp.ui.notices import Notices
from macapp.ui.readings_panel import HISTORY, ReadingsPanel, ReadingsReader, Sparkline
from macapp.ui.run_preview import RunPreview
from macapp.ui.supervision import Continuation
from macapp.ui.watchdog import Watchdog

if TYPE_CHECKING:
    from pathlib import Path

    from pytestqt.qtbot import QtBot


GB = 2**30
TOPICS = [topic for topic in typing.get_args(Topic) if topic]


# The watchdog -------------------------------------------------------------------------------------


@pytest.fixture
def watchdog(qapp: object) -> Watchdog:
    dog = Watchdog()
    dog.silence_seconds, dog.first_step_seconds = 0.2, 60.0
    dog._timer.setInterval(10)
    return dog


def test_silence_is_told_once_and_again_after_waiting(watchdog: Watchdog, qtbot: QtBot) -> None:
    told: list[object] = []
    watchdog.silent.connect(told.append)
    watchdog.begin_job()
    watchdog.set_state(TrainerState.RUNNING)
    watchdog.step_done(None)
    watchdog.heard(None)
    qtbot.waitUntil(lambda: bool(told), timeout=5000)
    QTest.qWait(300)
    assert len(told) == 1
    watchdog.wait_on()
    qtbot.waitUntil(lambda: len(told) == 2, timeout=5000)


def test_the_first_step_may_take_longer(watchdog: Watchdog, qtbot: QtBot) -> None:
    told: list[object] = []
    watchdog.silent.connect(told.append)
    watchdog.begin_job()
    watchdog.set_state(TrainerState.RUNNING)
    assert watchdog.limit_seconds == 60.0
    QTest.qWait(400)
    assert not told
    watchdog.step_done(None)
    qtbot.waitUntil(lambda: bool(told), timeout=5000)
    assert watchdog.limit_seconds == 0.2


def test_a_sign_of_life_withdraws_it(watchdog: Watchdog, qtbot: QtBot) -> None:
    watchdog.set_state(TrainerState.RUNNING)
    watchdog.step_done(None)
    with qtbot.waitSignal(watchdog.silent, timeout=5000):
        pass
    assert watchdog.is_silent
    with qtbot.waitSignal(watchdog.answered, timeout=1000):
        watchdog.heard(None)
    assert not watchdog.is_silent


@pytest.mark.parametrize(
    "state", [TrainerState.PAUSED, TrainerState.STOPPING, TrainerState.READY, TrainerState.WAITING]
)
def test_only_a_running_job_is_watched(
    watchdog: Watchdog, qtbot: QtBot, state: TrainerState
) -> None:
    watchdog.set_state(TrainerState.RUNNING)
    watchdog.step_done(None)
    with qtbot.waitSignal(watchdog.silent, timeout=5000):
        pass
    with qtbot.waitSignal(watchdog.answered, timeout=1000):
        watchdog.set_state(state)
    told: list[object] = []
    watchdog.silent.connect(told.append)
    QTest.qWait(400)
    assert not told


# Notices ------------------------------------------------------------------------------------------


def test_a_notice_replaces_the_earlier_one_of_its_kind(qtbot: QtBot) -> None:
    notices = Notices()
    qtbot.addWidget(notices)
    assert notices.isHidden()
    for epoch in (1, 2):
        text = Message("Epoch {epoch} is <slow> & late.", {"epoch": epoch})
        notices.take(RunNotice(1, "sleep", text))
    notices.take(RunNotice(1, "garbage", Message("Errors."), "garbage"))
    assert notices.texts == {"sleep": "Epoch 2 is <slow> & late.", "garbage": "Errors."}
    assert not notices.isHidden()
    labels = {label.text() for label in notices._labels.values()}
    assert "• Epoch 2 is &lt;slow&gt; &amp; late." in labels
    notices.withdraw("sleep")
    notices.withdraw("never said")
    assert not notices.isHidden()
    notices.clear()
    assert notices.isHidden()
    assert notices.texts == {}


def test_why_leads_to_the_help_page(qtbot: QtBot) -> None:
    notices = Notices()
    qtbot.addWidget(notices)
    notices.take(RunNotice(1, "garbage", Message("Errors."), "garbage"))
    label = notices._labels["garbage"]
    assert 'href="garbage"' in label.text()
    with qtbot.waitSignal(notices.help_requested) as told:
        label.linkActivated.emit("garbage")
    assert told.args == ["garbage"]


# The Help page ------------------------------------------------------------------------------------


@pytest.fixture
def help_page(qtbot: QtBot) -> HelpPage:
    page = HelpPage(macapp.resources.folder() / "help")
    qtbot.addWidget(page)
    page.resize(500, 300)
    page.show()
    qtbot.waitExposed(page)
    return page


def test_every_topic_has_a_chapter(help_page: HelpPage) -> None:
    starts = []
    for topic in TOPICS:
        help_page.verticalScrollBar().setValue(0)
        help_page.show_topic(topic)
        starts.append(help_page.verticalScrollBar().value())
    assert all(starts)
    assert len(set(starts)) >= len(starts) - 1  # the last two may share the end of the text


def test_it_explains_how_metal_works_and_the_three_problems(help_page: HelpPage) -> None:
    text = " ".join(help_page.toPlainText().split())
    for word in (
        "PyTorch → MPS → Metal → the GPU",
        "unified memory",
        "is_available()",
        "memory runs out",
        "MPS does not have all of them",
    ):
        assert word in text, word


@pytest.mark.parametrize("language", ["zh_CN", "de_DE", "C"])
def test_a_language_without_a_text_gets_the_english_one(qtbot: QtBot, language: str) -> None:
    before = QLocale()
    QLocale.setDefault(QLocale(language))
    try:
        page = HelpPage(macapp.resources.folder() / "help")
    finally:
        QLocale.setDefault(before)
    qtbot.addWidget(page)
    assert "Metal" in page.toPlainText()


def test_the_language_of_the_user_comes_first(qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "en.html").write_text("english", encoding="utf-8")
    (tmp_path / "zh.html").write_text("中文", encoding="utf-8")
    before = QLocale()
    QLocale.setDefault(QLocale("zh_CN"))
    try:
        page = HelpPage(tmp_path)
    finally:
        QLocale.setDefault(before)
    qtbot.addWidget(page)
    assert page.toPlainText() == "中文"


def test_a_missing_text_is_said(qtbot: QtBot, tmp_path: Path) -> None:
    page = HelpPage(tmp_path)
    qtbot.addWidget(page)
    assert "missing" in page.toPlainText()


# The line below Start -----------------------------------------------------------------------------


class AskedTrainer(QObject):
    """Takes down what it is asked."""

    inspected = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[TrainingConfig] = []

    def inspect(self, config: TrainingConfig) -> None:
        self.asked.append(config)


CONFIG = TrainingConfig()
FITS = Inspection(
    config=CONFIG,
    device="mps",
    on_cpu=(),
    is_complete=True,
    needed_bytes=GB,
    free_bytes=8 * GB,
    fitting_batch_size=64,
)


@pytest.fixture
def preview(qtbot: QtBot) -> tuple[RunPreview, AskedTrainer]:
    trainer = AskedTrainer()
    anything: Any = trainer
    label = RunPreview(anything)
    trainer.setParent(label)
    qtbot.addWidget(label)
    return label, trainer


@pytest.mark.parametrize(
    ("found", "texts"),
    [
        ({}, ["Metal has all operators of this run."]),
        ({"device": "cpu"}, []),
        ({"is_complete": False}, ["Which operators Metal lacks is not known here."]),
        (
            {"on_cpu": ("im2col", "im2col.out", "col2im")},
            ["which the CPU will compute: im2col, col2im."],
        ),
        (
            {"device": "cpu", "needed_bytes": 12 * GB, "fitting_batch_size": 32},
            ["A batch needs about 12.0 GB, but 8.0 GB are free.", "A batch size of 32 fits."],
        ),
        (
            {"device": "cpu", "needed_bytes": 12 * GB, "fitting_batch_size": 0},
            ["A batch needs about 12.0 GB, but 8.0 GB are free."],
        ),
    ],
)
def test_what_a_run_would_meet(
    preview: tuple[RunPreview, AskedTrainer],
    qtbot: QtBot,
    found: dict[str, Any],
    texts: list[str],
) -> None:
    label, trainer = preview
    label.set_state(TrainerState.READY)
    label.set_config(CONFIG)
    qtbot.waitUntil(lambda: trainer.asked == [CONFIG], timeout=5000)
    trainer.inspected.emit(msgspec.structs.replace(FITS, **found))
    for text in texts:
        assert text in label.text()
    assert label.isHidden() == (not texts)
    assert ("fits" in label.text()) == bool("fitting_batch_size" in found and texts[1:])


def test_a_busy_engine_is_not_asked(preview: tuple[RunPreview, AskedTrainer], qtbot: QtBot) -> None:
    label, trainer = preview
    label.set_state(TrainerState.RUNNING)
    label.set_config(CONFIG)
    QTest.qWait(600)
    assert not trainer.asked
    label.set_state(TrainerState.READY)
    qtbot.waitUntil(lambda: trainer.asked == [CONFIG], timeout=5000)


def test_settings_that_change_quickly_are_asked_about_once_and_a_late_answer_is_not_shown(
    preview: tuple[RunPreview, AskedTrainer], qtbot: QtBot
) -> None:
    label, trainer = preview
    label.set_state(TrainerState.READY)
    label.set_config(CONFIG)
    changed = msgspec.structs.replace(CONFIG, batch_size=128)
    label.set_config(changed)
    qtbot.waitUntil(lambda: trainer.asked == [changed], timeout=5000)
    trainer.inspected.emit(FITS)
    assert label.isHidden()
    label.set_config(None)  # a mistake in the form
    QTest.qWait(600)
    assert trainer.asked == [changed]


# Live readings ------------------------------------------------------------------------------------


def test_unknown_is_shown_as_unknown(qtbot: QtBot) -> None:
    panel = ReadingsPanel()
    qtbot.addWidget(panel)
    panel.show_readings(Readings())
    assert {label.text() for label in panel.values.values()} == {"unknown"}
    assert panel.state.text() == (
        "Power: unknown · Low Power Mode: unknown · Heat: unknown · Memory pressure: unknown"
    )
    assert all(curve.values == [None] for curve in panel.curves.values())


def test_a_run_on_the_cpu_uses_no_memory_of_a_gpu(qtbot: QtBot) -> None:
    panel = ReadingsPanel()
    qtbot.addWidget(panel)
    panel.start("cpu")
    panel.show_readings(Readings())
    assert panel.values["reserved"].text() == "not used"
    assert panel.values["gpu"].text() == "unknown"  # another program may use it


def test_everything_known_is_shown(qtbot: QtBot) -> None:
    panel = ReadingsPanel()
    qtbot.addWidget(panel)
    panel.set_device_memory(DeviceMemory(3 * 10**8, 2 * GB))
    panel.show_readings(
        Readings(
            process_bytes=GB,
            swap_bytes=0,
            pressure="warning",
            cpu_percent=12.4,
            gpu_percent=97.0,
            gpu_resets=2,
            power=Power(on_battery=True, low_power=True, thermal="fair", speed_limit_percent=60),
        )
    )
    texts = {name: label.text() for name, label in panel.values.items()}
    assert texts["gpu"] == "97 %"
    assert texts["cpu"] == "12 %"
    assert texts["reserved"] == "2.0 GB"
    assert panel.state.text() == (
        "Power: battery · Low Power Mode: on · Heat: raised · Memory pressure: high "
        "· CPU slowed to 60 % · GPU resets since the start: 2"
    )
    panel.set_running(False)
    assert not panel.values["gpu"].isEnabled()  # no longer true
    panel.start("mps")
    assert all(not curve.values for curve in panel.curves.values())


def test_a_curve_keeps_two_minutes_and_has_gaps(qtbot: QtBot) -> None:
    curve = Sparkline(100.0)
    qtbot.addWidget(curve)
    curve.resize(240, 20)
    for value in [*range(HISTORY), None, 50.0, 60.0]:
        curve.append(value)
    assert len(curve.values) == HISTORY
    image = curve.grab().toImage()
    colors = {image.pixelColor(x, y).name() for x in range(240) for y in range(20)}
    assert len(colors) > 1


def test_the_reader_reads_this_process_and_ends(qtbot: QtBot) -> None:
    reader = ReadingsReader(os.getpid)
    with qtbot.waitSignal(reader.taken, timeout=10_000) as told:
        reader.start()
    assert told.args is not None
    assert told.args[0].process_bytes > 2**20
    reader.stop()
    assert reader.wait(3000)


# Going on after a fault ---------------------------------------------------------------------------


def started(device: Any) -> JobStarted:
    return JobStarted(1, device, 21840, 16, 4)


def test_a_run_continues_where_the_last_state_was_saved() -> None:
    run = Continuation()
    assert not run.ran_on_a_gpu
    run.begin(TrainingConfig(device="auto", epochs=7))
    assert not run.ran_on_a_gpu  # not known yet
    run.started(started("mps"))
    assert run.ran_on_a_gpu
    assert run.first_epoch == 1
    assert run.on_the_cpu() == (TrainingConfig(device="cpu", epochs=7), "")
    run.saved(CheckpointSaved(1, 3, "/x/state.pt"))
    assert run.first_epoch == 4
    assert run.on_the_cpu()[1] == "/x/state.pt"
    run.begin(TrainingConfig(device="cpu", epochs=7), keeps_checkpoint=True)
    run.started(started("cpu"))
    assert not run.ran_on_a_gpu
    assert run.first_epoch == 4
    run.begin(TrainingConfig(device="mps"))
    assert run.ran_on_a_gpu  # it wanted to be: it may have failed before it began
    assert run.first_epoch == 1
