"""Where the engine process begins. Importing this module imports no torch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from macapp.engine.inbox import Inbox

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def main(connection: Connection, stderr: Connection, resources: str) -> None:
    """Run the engine until the window says `Quit` or goes away.

    Args:
        connection: receives commands, sends events.
        stderr: the writing end of a pipe. What C code prints (Metal, OpenMP, a failed assertion)
            goes to file descriptor 2 and never passes `sys.stderr`, so the descriptor itself is
            led there, before torch is loaded.
        resources: the folder of the data files.
    """
    os.dup2(stderr.fileno(), 2)
    stderr.close()

    inbox = Inbox(connection)  # before torch is loaded: see there
    from macapp.engine.service import Service

    Service(connection, inbox, resources).run()
    # WORKAROUND: pytorch/pytorch#188812, a crash in Metal's destructors when a process that used
    # MPS ends in the ordinary way. Nothing is left to be written here.
    os._exit(0)
