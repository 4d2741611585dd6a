"""Engine processes for tests of the window: real processes, real pipes, no torch.

Each function is an engine's ``main``. What it does is chosen by the learning rate or the seed
of the job, so that one window test can see several of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from macapp.messages import Failure, Message
from macapp.protocol import (
    Command,
    DeviceStatus,
    EngineReady,
    EpochDone,
    Event,
    Folders,
    JobEnded,
    JobFailed,
    JobPaused,
    JobResumed,
    JobStarted,
    Pause,
    Quit,
    Resume,
    SaveWeights,
    StartTraining,
    StepsDone,
    Stop,
    Versions,
    WeightsSaved,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

STEPS = 50
FLOOD = 20_000
READY = EngineReady(
    Versions(metal_trainer="0", python="3", torch="9.9", torchvision="9", numpy="2"),
    (
        DeviceStatus("mps", "not_here", Message("Metal exists only on a Mac.")),
        DeviceStatus("cuda", "not_here", Message("No NVIDIA GPU was found.")),
        DeviceStatus("cpu", "ready", Message("Ready, with 2 threads.")),
    ),
)


def say(connection: Connection, *events: Event) -> None:
    """Send events as the engine does: a tuple in one message."""
    connection.send(events)


def next_job(connection: Connection) -> StartTraining | None:
    """Return the next job; requests in between stay unanswered. None: it is over."""
    while not isinstance(command := connection.recv(), Quit):
        if isinstance(command, StartTraining):
            return command
    return None


class FakeEngine:
    """Says what the real engine would say, at once or when a test lets it."""

    def __init__(self, connection: Connection, step_seconds: float = 0.0) -> None:
        self.connection = connection
        self.step_seconds = step_seconds
        self.stopped = 0
        self.paused = 0

    def run(self) -> None:
        say(self.connection, READY)
        while True:
            command = self.connection.recv()
            if isinstance(command, StartTraining):
                self.train(command)
            elif isinstance(command, SaveWeights):
                say(self.connection, WeightsSaved(command.path, None))
            elif isinstance(command, Quit):
                return

    def train(self, command: StartTraining) -> None:
        job, epochs = command.job, command.config.epochs
        say(self.connection, JobStarted(job, "cpu", 21840, STEPS, epochs))
        for epoch in range(1, epochs + 1):
            for first in range((epoch - 1) * STEPS + 1, epoch * STEPS + 1, 10):
                time.sleep(self.step_seconds)
                losses = np.linspace(2.0 / epoch, 1.0 / epoch, 10, dtype=np.float32)
                say(self.connection, StepsDone(job, epoch, first, losses, 0.1 * epoch))
                self.take_commands(job)
                if self.stopped >= job:
                    say(self.connection, JobEnded(job, "stopped"))
                    return
            say(
                self.connection,
                EpochDone(
                    job, epoch, epoch * STEPS, 3.5, 17000.0, 0.5 / epoch, 0.4 / epoch, 0.9, 0.1
                ),
            )
        say(self.connection, JobEnded(job, "finished"))

    def take_commands(self, job: int) -> None:
        while self.connection.poll():
            self.take(self.connection.recv())
        if self.paused == job and self.stopped < job:
            say(self.connection, JobPaused(job))
            while self.paused == job and self.stopped < job:
                self.take(self.connection.recv())
            if self.stopped < job:
                say(self.connection, JobResumed(job))

    def take(self, command: Command) -> None:
        match command:
            case Pause():
                self.paused = command.job
            case Resume():
                self.paused = 0
            case Stop():
                self.stopped = command.job
            case Quit():
                os._exit(0)


def _with(connection: Connection, stderr: Connection) -> None:
    os.dup2(stderr.fileno(), 2)
    stderr.close()


def quick(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Trains without taking time."""
    _with(connection, stderr)
    FakeEngine(connection).run()


def slow(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Takes 50 ms for ten steps."""
    _with(connection, stderr)
    FakeEngine(connection, 0.05).run()


def floods(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Sends a message a step, as fast as the pipe takes them: far more than a real engine."""
    _with(connection, stderr)
    say(connection, READY)
    while command := next_job(connection):
        say(connection, JobStarted(command.job, "cpu", 21840, FLOOD, 1))
        for step in range(FLOOD):
            losses = np.array([step], np.float32)
            say(connection, StepsDone(command.job, 1, step + 1, losses, 0.1))
        epoch = EpochDone(command.job, 1, FLOOD, 3.5, 17000.0, 0.5, 0.4, 0.9, 0.1)
        say(connection, epoch, JobEnded(command.job, "finished"))


def late(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Needs a second to get ready, like one that loads PyTorch."""
    _with(connection, stderr)
    time.sleep(1)
    FakeEngine(connection).run()


def never_ready(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Dies on the way, saying why on file descriptor 2."""
    _with(connection, stderr)
    os.write(2, b"dyld: Symbol not found: _thing\n")
    os._exit(3)


def deaf(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Starts a job, and never hears or says anything again."""
    _with(connection, stderr)
    say(connection, READY)
    command = next_job(connection)
    assert command is not None
    say(connection, JobStarted(command.job, "cpu", 21840, STEPS, command.config.epochs))
    while True:
        time.sleep(60)


def leaves_a_child(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Dies, while a process that it started holds its end of the pipe for stderr."""
    _with(connection, stderr)
    say(connection, READY)
    next_job(connection)
    child = subprocess.Popen(["sleep", "3"], start_new_session=True)
    os.write(2, f"child {child.pid}\n".encode())
    os._exit(4)


def failing(connection: Connection, stderr: Connection, _folders: Folders) -> None:
    """Answers every job with a failure that has a traceback in its details."""
    _with(connection, stderr)
    say(connection, READY)
    while command := next_job(connection):
        failure = Failure(
            Message("There is not enough memory for this run."),
            Message("Choose a smaller batch size."),
            "Traceback (most recent call last):\n  boom",
        )
        say(connection, JobFailed(command.job, failure))


def _dies_by(how: Callable[[], None]) -> Callable[[Connection, Connection, Folders], None]:
    def main(connection: Connection, stderr: Connection, _folders: Folders) -> None:
        _with(connection, stderr)

        class Dying(FakeEngine):
            def take_commands(self, job: int) -> None:
                super().take_commands(job)
                self.sent = getattr(self, "sent", 0) + 1
                if self.sent > STEPS // 10 + 2:  # in the second epoch
                    sys.stderr.write("failed assertion `it broke'\n")
                    sys.stderr.flush()
                    how()

        Dying(connection).run()

    return main


def aborts(connection: Connection, stderr: Connection, folders: Folders) -> None:
    """Aborts in the second epoch, as a failed assertion in Metal does."""
    _dies_by(os.abort)(connection, stderr, folders)


def is_killed(connection: Connection, stderr: Connection, folders: Folders) -> None:
    """Is killed in the second epoch, as by a system without memory."""
    _dies_by(lambda: os.kill(os.getpid(), signal.SIGKILL))(connection, stderr, folders)
