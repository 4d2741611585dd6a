"""The entry: ``python -m macapp``, the script ``metal-trainer``, and the frozen app.

The engine process imports this module, too: nothing heavy may be imported at its top.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from contextlib import suppress


def main() -> int:
    """Do what the arguments say: the window by default; return the exit code."""
    # First of all: in a frozen app the engine process begins here, and goes no further.
    multiprocessing.freeze_support()
    from macapp.command_line import run

    code = run(sys.argv[1:])
    if "torch" in sys.modules:  # never in the window's process
        # WORKAROUND: pytorch/pytorch#188812, a crash in Metal's destructors when a process that
        # used MPS ends in the ordinary way: a run that went well would report a failure.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
