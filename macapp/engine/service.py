"""The engine's work: run one job at a time, answer requests, send events."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from macapp.engine import checkpoint, failures, inspection, training, versions
from macapp.engine.diagnosis import DeviceSurvey
from macapp.engine.fallbacks import FallbackRecorder
from macapp.messages import UserError
from macapp.protocol import (
    CheckDevices,
    DevicesFound,
    EngineReady,
    EpochDone,
    Event,
    Folders,
    Inspect,
    JobEnded,
    JobFailed,
    JobPaused,
    JobResumed,
    SaveWeights,
    StartTraining,
    StepsDone,
    WeightsSaved,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from torch import nn

    from macapp.engine.inbox import Inbox
    from macapp.protocol import Request

MESSAGE_SECONDS = 0.05
"""Progress is sent at most 20 times a second, whatever the batch rate."""


class Service:
    """Works on the thread that calls `run`: all torch work, and all sending, happens there."""

    def __init__(self, connection: Connection, inbox: Inbox, folders: Folders) -> None:
        """Serve the window at the other end of ``connection``; ``inbox`` reads what it says."""
        self._connection = connection
        self._inbox = inbox
        self._resources = Path(folders.resources)
        self._checkpoints = Path(folders.checkpoints) if folders.checkpoints else None
        self._survey = DeviceSurvey(Path(folders.cache) if folders.cache else None)
        self._network: nn.Module | None = None
        self._held: list[Event] = []
        self._sent_at = 0.0

    def run(self) -> None:
        """Serve until the window says `Quit`."""
        self._send(EngineReady(versions.collect(), self._survey.statuses))
        if not self._survey.is_complete:
            self._send(DevicesFound(self._survey.complete()))
        while (command := self._inbox.next()) is not None:
            if isinstance(command, StartTraining):
                self._run_job(command)
            else:
                self._answer(command)

    def _send(self, event: Event) -> None:
        """Send an event, together with those held back: epochs may take but milliseconds."""
        self._held.append(event)
        # A state on disk is told at once: what a crash in the next moment can go on from.
        is_progress = isinstance(event, (StepsDone, EpochDone))
        if is_progress and time.monotonic() - self._sent_at < MESSAGE_SECONDS:
            return  # the next event takes it along; the last one of a job is no progress
        try:
            self._connection.send(tuple(self._held))
        except OSError:  # nobody is left to hear it
            os._exit(0)
        self._held.clear()
        self._sent_at = time.monotonic()

    def _run_job(self, command: StartTraining) -> None:
        job = command.job
        try:
            self._send(self._train(command))
        except Exception as error:
            self._send(JobFailed(job, failures.describe(error)))

    def _train(self, command: StartTraining) -> JobEnded:
        job = command.job
        if self._inbox.is_stopped(job):
            return JobEnded(job, "stopped")
        start = checkpoint.load(Path(command.checkpoint)) if command.checkpoint else None
        config = command.config
        network, dataset, device = training.assemble(config, self._resources, self._survey)
        self._network = network
        path = self._checkpoints / f"{os.getpid()}-{job}.pt" if self._checkpoints else None
        events = training.train(
            config, network, dataset, device, job=job, start=start, checkpoint_path=path
        )
        with FallbackRecorder(job) as fallbacks:
            for event in events:
                self._send(event)
                if (notice := fallbacks.news()) is not None:
                    self._send(notice)
                if isinstance(event, EpochDone):
                    fallbacks.settle()
                self._between_steps(job)
                if self._inbox.is_stopped(job):
                    return JobEnded(job, "stopped")
        return JobEnded(job, "finished")

    def _between_steps(self, job: int) -> None:
        """Answer requests; hold here while the job is paused."""
        self._answer_all()
        if not self._inbox.is_paused(job):
            return
        self._send(JobPaused(job))
        while self._inbox.is_paused(job):
            self._inbox.wait_while_paused(job)
            self._answer_all()
        if not self._inbox.is_stopped(job):
            self._send(JobResumed(job))

    def _answer_all(self) -> None:
        while (request := self._inbox.next_request()) is not None:
            self._answer(request)

    def _answer(self, request: Request) -> None:
        match request:
            case SaveWeights():
                self._send(self._save(request))
            case CheckDevices():
                self._send(DevicesFound(self._survey.complete(again=True)))
            case Inspect():
                self._inspect(request)

    def _save(self, request: SaveWeights) -> WeightsSaved:
        try:
            checkpoint.save_weights(self._network, Path(request.path))
        except Exception as error:
            return WeightsSaved(request.path, failures.describe(error))
        return WeightsSaved(request.path, None)

    def _inspect(self, request: Inspect) -> None:
        """Answer, unless there is nothing to say: a device that is not ready says why itself."""
        with suppress(UserError):
            device = self._survey.choose(request.config.device)
            self._send(inspection.inspect(request.config, device))
