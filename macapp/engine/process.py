"""Where the engine process begins. Importing this module imports no torch."""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING

from macapp.engine import environment
from macapp.engine.inbox import Inbox

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from macapp.protocol import Folders


def main(connection: Connection, stderr: Connection, folders: Folders) -> None:
    """Run the engine until the window says `Quit` or goes away.

    Args:
        connection: receives commands, sends events.
        stderr: the writing end of a pipe. What C code prints (Metal, OpenMP, a failed assertion)
            goes to file descriptor 2 and never passes `sys.stderr`, so the descriptor itself is
            led there, before torch is loaded.
        folders: where the data files are, and where to write.
    """
    os.dup2(stderr.fileno(), 2)
    stderr.close()
    faulthandler.enable(2)  # where each thread was, when a signal ends the process

    inbox = Inbox(connection)  # before torch is loaded: see there
    environment.prepare()  # the same
    from macapp.engine.service import Service

    Service(connection, inbox, folders).run()
    # WORKAROUND: pytorch/pytorch#188812, a crash in Metal's destructors when a process that used
    # MPS ends in the ordinary way. Nothing is left to be written here.
    os._exit(0)
