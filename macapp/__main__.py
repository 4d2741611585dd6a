"""The entry: ``python -m macapp``, the script ``metal-trainer``, and the frozen app.

The engine process imports this module, too: nothing heavy may be imported at its top.
"""

from __future__ import annotations

import multiprocessing
import sys


def main() -> int:
    """Do what the arguments say: the window by default; return the exit code."""
    # First of all: in a frozen app the engine process begins here, and goes no further.
    multiprocessing.freeze_support()
    from macapp.command_line import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
