"""The main window, and who is connected to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QMainWindow,
    QMessageBox,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from macapp import __version__
from macapp.awake import Awake
from macapp.trainer import Trainer, TrainerState
from macapp.ui import theme, words
from macapp.ui.device_panel import DevicePanel
from macapp.ui.help_page import HelpPage
from macapp.ui.hyperparameter_form import HyperparameterForm
from macapp.ui.machine_reader import MachineReader
from macapp.ui.menus import Menus
from macapp.ui.message_bar import MessageBar
from macapp.ui.run_preview import RunPreview
from macapp.ui.supervision import Continuation, Supervision
from macapp.ui.train_page import TrainPage
from macapp.ui.vertical_scroll import VerticalScroll

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from PySide6.QtGui import QCloseEvent

    from macapp.diagnostics import Diagnostics
    from macapp.machine import Machine
    from macapp.messages import Failure, Topic
    from macapp.protocol import (
        CheckpointSaved,
        DevicesFound,
        DeviceStatus,
        EngineReady,
        JobEnded,
        JobFailed,
        JobStarted,
        TrainingConfig,
        WeightsSaved,
    )
    from macapp.ui.preferences import Preferences
    from macapp.ui.theme import Appearance

SIDEBAR_WIDTH = 96
QUIT_MS = 4500
"""The engine ends by itself or is killed within 2 s; this is the end of all patience."""


class MainWindow(QMainWindow):
    """One window: sidebar, settings with the device card, pages."""

    def __init__(
        self,
        trainer: Trainer,
        preferences: Preferences,
        apply_appearance: Callable[[Appearance], None],
        diagnostics: Diagnostics,
        help_folder: Path,
    ) -> None:
        """Build everything; `start_services` starts the trainer.

        Args:
            trainer: does what is asked for here.
            preferences: what is remembered between two starts.
            apply_appearance: makes the whole app light or dark.
            diagnostics: keeps what went wrong, for *Copy diagnostics*.
            help_folder: holds the text of the Help page.
        """
        super().__init__()
        self.trainer = trainer
        self._preferences = preferences
        self._apply_appearance = apply_appearance
        self._diagnostics = diagnostics
        self._state = TrainerState.PREPARING
        self._machine: Machine | None = None
        self._engine: EngineReady | None = None
        self._devices: tuple[DeviceStatus, ...] = ()
        self._continuation = Continuation()
        self._may_quit = False
        self.setWindowTitle(self.tr("Metal Trainer"))

        self.sidebar = QListWidget()
        self.sidebar.setFixedWidth(SIDEBAR_WIDTH)
        self.sidebar.setFrameShape(QListWidget.Shape.NoFrame)
        self.sidebar.viewport().setAutoFillBackground(False)  # part of the window, not a field
        self.sidebar.setAccessibleName(self.tr("Pages"))
        self.pages = QStackedWidget()
        self.device_panel = DevicePanel()
        self.form = HyperparameterForm(preferences.config)
        self.start_button = QPushButton(self.tr("Start"))
        theme.make_primary(self.start_button)
        self.message_bar = MessageBar()
        self.quit_bar = MessageBar()
        self.watchdog_bar = MessageBar()
        self.run_preview = RunPreview(trainer)
        self.train_page = TrainPage()
        self.help_page = HelpPage(help_folder)
        self._add_page(self.tr("Train"), self.train_page)
        self._add_page(self.tr("Help"), self.help_page)
        self._build_layout()
        self._menus = Menus(self.menuBar(), preferences.appearance)
        self._connect_menus()

        self._machine_reader = MachineReader(self)
        self._machine_reader.found.connect(self._machine_found)
        self.sidebar.currentRowChanged.connect(self.pages.setCurrentIndex)
        self.sidebar.setCurrentRow(0)
        self.start_button.clicked.connect(self.start_training)
        self.form.changed.connect(self._form_changed)
        self.form.changed.connect(self.run_preview.set_config)
        self.run_preview.set_config(self.form.config())
        self.supervision = Supervision(trainer, Awake(), self)
        self.supervision.readings_taken.connect(self.train_page.readings.show_readings)
        self.supervision.watchdog.silent.connect(self._engine_silent)
        self.supervision.watchdog.answered.connect(self._engine_answered)
        self.watchdog_bar.accepted.connect(self._silence_stopped)
        self.watchdog_bar.refused.connect(self._silence_awaited)
        self.message_bar.accepted.connect(self._continue_on_the_cpu)
        self.message_bar.help_requested.connect(self.show_help)
        self.train_page.notices.help_requested.connect(self.show_help)
        self.device_panel.test_requested.connect(self._test_devices)
        self.device_panel.copy_requested.connect(self._copy_diagnostics)
        self.quit_bar.accepted.connect(self._quit_confirmed)
        self.train_page.loss_plot.export_failed.connect(self._export_failed)
        self.train_page.accuracy_plot.export_failed.connect(self._export_failed)
        progress = self.train_page.progress
        progress.pause_requested.connect(self._pause)
        progress.resume_requested.connect(self._resume)
        progress.stop_requested.connect(self._stop)
        progress.force_stop_requested.connect(self._force_stop)
        trainer.state_changed.connect(self._state_changed)
        trainer.engine_ready.connect(self._engine_ready)
        trainer.engine_lost.connect(self._engine_lost)
        trainer.devices_found.connect(self._devices_found)
        trainer.job_started.connect(self._job_started)
        trainer.batch_halved.connect(self.train_page.halve_batch)
        trainer.notice_given.connect(self.train_page.notices.take)
        trainer.checkpoint_saved.connect(self._checkpoint_saved)
        trainer.steps_done.connect(self.train_page.add_steps)
        trainer.epoch_done.connect(self.train_page.add_epoch)
        trainer.job_ended.connect(self._job_ended)
        trainer.job_failed.connect(self._job_failed)
        trainer.weights_saved.connect(self._weights_saved)

        self.resize(1280, 800)
        if not preferences.geometry.isEmpty():
            self.restoreGeometry(preferences.geometry)
        self._refresh_actions()

    def start_services(self) -> None:
        """Start the engine and look at the computer; called when the window is on screen."""
        self.trainer.start()
        self._machine_reader.start()

    # Layout --------------------------------------------------------------------------------------

    def _add_page(self, title: str, page: QWidget) -> None:
        item = QListWidgetItem(title, self.sidebar)
        item.setTextAlignment(Qt.AlignmentFlag.AlignCenter)
        item.setSizeHint(QSize(0, 4 * theme.SPACING))
        self.pages.addWidget(page)

    def _build_layout(self) -> None:
        settings = QWidget()
        settings_layout = QVBoxLayout(settings)
        settings_layout.setContentsMargins(0, 0, theme.SPACING, 0)
        settings_layout.setSpacing(theme.SPACING)
        settings_layout.addWidget(self.device_panel)
        settings_layout.addWidget(self.form)
        middle = QWidget()
        middle.setFixedWidth(344)
        middle_layout = QVBoxLayout(middle)
        middle_layout.setContentsMargins(0, 0, 0, 0)
        middle_layout.addWidget(VerticalScroll(settings))
        start_row = QHBoxLayout()
        start_row.setContentsMargins(0, 0, theme.SPACING, 0)
        start_row.addWidget(self.start_button)
        middle_layout.addLayout(start_row)
        middle_layout.addWidget(self.run_preview)
        middle_layout.addStretch()

        right = QVBoxLayout()
        right.setSpacing(theme.SPACING)
        right.addWidget(self.quit_bar)
        right.addWidget(self.watchdog_bar)
        right.addWidget(self.message_bar)
        right.addWidget(self.pages, 1)
        central = QWidget()
        row = QHBoxLayout(central)
        row.setContentsMargins(*(4 * [theme.SPACING]))
        row.setSpacing(theme.SPACING)
        row.addWidget(self.sidebar)
        row.addWidget(middle)
        row.addLayout(right, 1)
        self.setCentralWidget(central)

    def _connect_menus(self) -> None:
        menus, progress = self._menus, self.train_page.progress
        menus.save.triggered.connect(self._ask_where_to_save)
        menus.quit.triggered.connect(self.close)
        menus.start.triggered.connect(self.start_training)
        menus.pause.triggered.connect(progress.pause_button.click)
        menus.stop.triggered.connect(progress.stop_button.click)
        menus.fit.triggered.connect(self._fit_plots)
        menus.appearance_chosen.connect(self.set_appearance)
        menus.help.triggered.connect(self._show_help_page)
        menus.diagnostics.triggered.connect(self._copy_diagnostics)
        menus.about.triggered.connect(self._show_about)

    # What the user does --------------------------------------------------------------------------

    @Slot()
    def start_training(self) -> None:
        """Start what the form shows, if all of it is right."""
        config = self.form.config()
        if config is not None:
            self._start(config)

    def _start(self, config: TrainingConfig, checkpoint: str = "") -> None:
        if not self._state.can_start:
            return
        # The trainer answers a moment later; a second press until then must not start a second job.
        self._state = TrainerState.WAITING
        self._refresh_actions()
        self.message_bar.hide()
        self._preferences.config = config
        self._continuation.begin(config, keeps_checkpoint=bool(checkpoint))
        self._save_preferences()
        self.trainer.train(config, checkpoint)

    @Slot(object)
    def _continue_on_the_cpu(self, _bar: MessageBar) -> None:
        config, checkpoint = self._continuation.on_the_cpu()
        self.form.set_config(config)
        self._start(config, checkpoint)

    @Slot(object)
    def _pause(self, _nothing: None) -> None:
        self.trainer.pause()

    @Slot(object)
    def _resume(self, _nothing: None) -> None:
        self.trainer.resume()

    @Slot(object)
    def _stop(self, _nothing: None) -> None:
        self.trainer.stop()

    @Slot(object)
    def _force_stop(self, _nothing: None) -> None:
        self.trainer.force_stop()

    @Slot(object)
    def _form_changed(self, _config: TrainingConfig | None) -> None:
        self._refresh_actions()

    @Slot(object)
    def _test_devices(self, _nothing: None) -> None:
        self.trainer.check_devices()

    @Slot()
    def _show_help_page(self) -> None:
        self.sidebar.setCurrentRow(self.pages.indexOf(self.help_page))

    @Slot(object)
    def show_help(self, topic: Topic) -> None:
        """Open the Help page at a chapter."""
        self._show_help_page()
        self.help_page.show_topic(topic)

    @Slot()
    @Slot(object)
    def _copy_diagnostics(self, _nothing: object = None) -> None:
        QGuiApplication.clipboard().setText(self._diagnostics.report(self._facts()))
        self.statusBar().showMessage(self.tr("The diagnostics are on the clipboard."), 8000)

    @Slot()
    def _fit_plots(self) -> None:
        self.train_page.loss_plot.fit()
        self.train_page.accuracy_plot.fit()

    @Slot(object)
    def set_appearance(self, appearance: Appearance) -> None:
        """Change between light, dark and the system's choice, and remember it."""
        self._preferences.appearance = appearance
        self._save_preferences()
        self._apply_appearance(appearance)

    @Slot()
    def _ask_where_to_save(self) -> None:
        dialog = QFileDialog(self, self.tr("Save network"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(self.tr("Weights (*.safetensors)"))
        dialog.setDefaultSuffix("safetensors")
        dialog.selectFile(self.tr("network") + ".safetensors")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self._save_chosen)
        dialog.open()

    @Slot(str)
    def _save_chosen(self, path: str) -> None:
        self.trainer.save_weights(path)

    @Slot()
    def _show_about(self) -> None:
        text = self.tr(
            "Metal Trainer {version}\n\nTrains a convolutional network on your Mac, shows what "
            "happens, and tells what Metal is worth. Nothing leaves this computer.\n\n"
            "MIT licence. MNIST: Y. LeCun, C. Cortes, C. J. C. Burges, CC BY-SA 3.0."
        ).format(version=__version__)
        box = QMessageBox(QMessageBox.Icon.NoIcon, self.tr("About Metal Trainer"), text)
        box.setParent(self, Qt.WindowType.Dialog)
        box.setModal(False)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.show()

    # What the trainer says -----------------------------------------------------------------------

    @Slot(object)
    def _machine_found(self, computer: Machine) -> None:
        self._machine = computer
        self.device_panel.show_machine(computer)

    @Slot(object)
    def _state_changed(self, state: TrainerState) -> None:
        self._state = state
        self.train_page.progress.set_state(state)
        self.device_panel.allow_test(state is TrainerState.READY)
        self.run_preview.set_state(state)
        self.train_page.readings.set_running(state.has_job)
        if not state.has_job:
            self.quit_bar.hide()
        self._refresh_actions()

    @Slot(object)
    def _engine_ready(self, event: EngineReady) -> None:
        self._engine = event
        self._devices = event.devices
        self.device_panel.show_engine(event)
        self.form.set_devices(event.devices)

    @Slot(object)
    def _devices_found(self, event: DevicesFound) -> None:
        self._devices = event.devices
        self.device_panel.show_devices(event.devices)
        self.form.set_devices(event.devices)
        self.run_preview.ask()

    @Slot(object)
    def _job_started(self, event: JobStarted) -> None:
        self._continuation.started(event)
        self.train_page.start(event)

    @Slot(object)
    def _checkpoint_saved(self, event: CheckpointSaved) -> None:
        self._continuation.saved(event)

    @Slot(object)
    def _engine_silent(self, _nothing: None) -> None:
        seconds = round(self.supervision.watchdog.limit_seconds)
        on_gpu = self._continuation.ran_on_a_gpu
        self.watchdog_bar.ask(
            self.tr("The GPU has stopped answering.")
            if on_gpu
            else self.tr("The engine has stopped answering."),
            self.tr(
                "Nothing was heard for {seconds} s, longer than a step takes. If the computer is "
                "busy, wait; else stop. The finished epochs are kept."
            ).format(seconds=seconds),
            action=self.tr("Stop"),
            close=self.tr("Wait"),
        )

    @Slot(object)
    def _engine_answered(self, _nothing: None) -> None:
        self.watchdog_bar.hide()

    @Slot(object)
    def _silence_stopped(self, _bar: MessageBar) -> None:
        self.trainer.stop()

    @Slot(object)
    def _silence_awaited(self, _bar: MessageBar) -> None:
        self.supervision.watchdog.wait_on()

    @Slot(object)
    def _job_ended(self, event: JobEnded) -> None:
        match event.outcome:
            case "finished":
                last = self.train_page.epoch_table.epoch_model.epochs[-1]
                text = self.tr(
                    "Finished: {percent} % of the test pictures are classified correctly."
                ).format(percent=words.number(100 * last.test_accuracy, 2))
            case "stopped":
                text = self.tr("Stopped. What was learned is kept: File → Save network.")
            case "forced":
                text = self.tr(
                    "Stopped by force. The finished epochs are kept, the network is not."
                )
            case "cancelled":
                text = self.tr("Stopped before the training began.")
        self.train_page.progress.finish(text)
        if event.outcome == "forced" and self._continuation.ran_on_a_gpu:
            self.message_bar.show_failure(
                self.tr("The run on the GPU was stopped by force."),
                self.tr("The CPU can go on with it."),
                topic="crash",
                action=self._continue_text(),
            )

    @Slot(object)
    def _job_failed(self, event: JobFailed) -> None:
        self.train_page.progress.finish(self.tr("The run has ended early."))
        failure = event.failure
        can_continue = failure.blames_device and self._continuation.ran_on_a_gpu
        self.show_failure(failure, self._continue_text() if can_continue else "")

    def _continue_text(self) -> str:
        epoch = self._continuation.first_epoch
        if epoch == 1:
            return self.tr("Train on the CPU instead")
        return self.tr("Continue on the CPU from epoch {epoch}").format(epoch=epoch)

    @Slot(object)
    def _engine_lost(self, failure: Failure) -> None:
        self.show_failure(failure)

    @Slot(object)
    def _weights_saved(self, event: WeightsSaved) -> None:
        if event.failure is not None:
            self.show_failure(event.failure)
        else:
            self.statusBar().showMessage(self.tr("Saved {path}").format(path=event.path), 8000)

    @Slot(object)
    def show_failure(self, failure: Failure, action: str = "") -> None:
        """Say what went wrong, above everything else, and block nothing."""
        self._diagnostics.take_failure(failure)
        self.message_bar.show_failure(
            words.translated(failure.what),
            words.translated(failure.remedy),
            self._diagnostics.report(self._facts()) if failure.details else "",
            topic=failure.topic,
            action=action,
        )

    @Slot(object)
    def _export_failed(self, reason: str) -> None:
        self.message_bar.show_failure(
            self.tr("The plot could not be saved."),
            self.tr("Choose a folder that you may write to and that has room."),
            reason,
        )

    def _facts(self) -> dict[str, object]:
        """Return what a developer wants to know of this app and computer."""
        return {
            "app": __version__,
            "versions": self._engine.versions if self._engine else None,
            "devices": self._devices,
            "machine": self._machine,
            "config": self._continuation.config,
            "notices": self.train_page.notices.texts,
        }

    def _refresh_actions(self) -> None:
        can_start = self.form.config() is not None and self._state.can_start
        self.start_button.setEnabled(can_start)
        self._menus.start.setEnabled(can_start)
        progress = self.train_page.progress
        self._menus.pause.setText(progress.pause_button.text())
        self._menus.pause.setEnabled(progress.pause_button.isEnabled())
        self._menus.stop.setEnabled(progress.stop_button.isEnabled())

    def _save_preferences(self) -> None:
        if self._preferences.save():
            return
        self.message_bar.show_failure(
            self.tr("Your settings cannot be saved; training is not affected."),
            self.tr("Make sure that you may write to the folder {folder}.").format(
                folder=self._preferences.path.parent
            ),
        )

    # The end -------------------------------------------------------------------------------------

    def closeEvent(self, event: QCloseEvent) -> None:
        """Ask once while a job runs; else end the engine and go."""
        # A second request, with the question still there, is an answer, too.
        if self._state.has_job and not self._may_quit and not self.quit_bar.isVisible():
            event.ignore()
            self.quit_bar.ask(
                self.tr("A run is in progress."),
                self.tr("The epochs finished so far, and the network, are lost if you quit now."),
                action=self.tr("Quit now"),
                close=self.tr("Keep training"),
            )
            return
        self._preferences.geometry = self.saveGeometry()
        self._preferences.save()
        if self.trainer.isRunning():
            self.trainer.shutdown()
            self.trainer.wait(QUIT_MS)
        self._machine_reader.wait(QUIT_MS)
        self.supervision.end(QUIT_MS)
        event.accept()

    @Slot(object)
    def _quit_confirmed(self, _bar: MessageBar) -> None:
        self._may_quit = True
        self.close()
