"""The engine process: read commands, run one job at a time, send events."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from macapp.engine import checkpoint, devices, failures, training, versions
from macapp.protocol import (
    Command,
    EngineReady,
    Event,
    JobEnded,
    JobFailed,
    JobPaused,
    JobResumed,
    Pause,
    Quit,
    Resume,
    SaveWeights,
    StartTraining,
    Stop,
    WeightsSaved,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from torch import nn


class Service:
    """Runs jobs on the thread that calls `run`; a second thread reads commands and sets flags.

    All torch work, and all sending, happens on the first thread.
    """

    def __init__(self, connection: Connection, resources: str) -> None:
        """Serve the window at the other end of ``connection``."""
        self._connection = connection
        self._resources = Path(resources)
        self._jobs: queue.SimpleQueue[StartTraining | Quit] = queue.SimpleQueue()
        self._requests: queue.SimpleQueue[SaveWeights] = queue.SimpleQueue()
        self._changed = threading.Condition()
        # Job numbers grow, so one number stops a job and every one queued before it.
        self._stopped_through = 0
        self._paused_job = 0
        self._quitting = False
        self._network: nn.Module | None = None

    def run(self) -> None:
        """Serve until the window says `Quit`; end the process when the window is gone."""
        threading.Thread(target=self._read_commands, daemon=True, name="commands").start()
        self._send(EngineReady(versions.collect(), devices.survey()))
        while isinstance(job := self._next_job(), StartTraining):
            self._run_job(job)

    # On the thread of the jobs -----------------------------------------------------------------

    def _send(self, event: Event) -> None:
        try:
            self._connection.send(event)
        except OSError:  # nobody is left to hear it
            os._exit(0)

    def _next_job(self) -> StartTraining | Quit:
        """Wait for a job; answer short requests meanwhile."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not (self._jobs.empty() and self._requests.empty()))
            self._answer_requests()
            if not self._jobs.empty():
                return self._jobs.get()

    def _run_job(self, command: StartTraining) -> None:
        job = command.job
        try:
            self._send(self._train(command))
        except Exception as error:
            self._send(JobFailed(job, failures.describe(error)))

    def _train(self, command: StartTraining) -> JobEnded:
        job = command.job
        if self._is_stopped(job):
            return JobEnded(job, "stopped")
        network, dataset, device = training.assemble(command.config, self._resources)
        self._network = network
        for event in training.train(command.config, network, dataset, device, job=job):
            self._send(event)
            self._between_steps(job)
            if self._is_stopped(job):
                return JobEnded(job, "stopped")
        return JobEnded(job, "finished")

    def _between_steps(self, job: int) -> None:
        """Answer short requests; hold here while the job is paused."""
        self._answer_requests()
        if not self._is_paused(job):
            return
        self._send(JobPaused(job))
        while self._is_paused(job):
            with self._changed:
                self._changed.wait_for(
                    lambda: not self._is_paused(job) or not self._requests.empty()
                )
            self._answer_requests()
        if not self._is_stopped(job):
            self._send(JobResumed(job))

    def _is_stopped(self, job: int) -> bool:
        return self._quitting or job <= self._stopped_through

    def _is_paused(self, job: int) -> bool:
        return job == self._paused_job and not self._is_stopped(job)

    def _answer_requests(self) -> None:
        while not self._requests.empty():
            request = self._requests.get()
            try:
                checkpoint.save_weights(self._network, Path(request.path))
            except Exception as error:
                self._send(WeightsSaved(request.path, failures.describe(error)))
            else:
                self._send(WeightsSaved(request.path, None))

    # On the thread of the commands --------------------------------------------------------------

    def _read_commands(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, OSError):
            # The window died or was killed: no orphan keeps a GPU busy.
            os._exit(0)

    def _take(self, command: Command) -> None:
        with self._changed:
            match command:
                case StartTraining():
                    self._jobs.put(command)
                case SaveWeights():
                    self._requests.put(command)
                case Pause():
                    self._paused_job = command.job
                case Resume():
                    self._paused_job = 0
                case Stop():
                    self._stopped_through = command.job
                case Quit():
                    self._quitting = True
                    self._jobs.put(command)
            self._changed.notify_all()
