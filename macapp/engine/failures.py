"""From an exception to what the user reads."""

from __future__ import annotations

import re
import traceback

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError

# MPS raises a plain RuntimeError, CUDA a subclass of it, the CPU's allocator another text.
_OUT_OF_MEMORY = re.compile(r"out of memory|Invalid buffer size|can't allocate memory", re.I)


def describe(error: BaseException) -> Failure:
    """Return the failure to show for ``error``; the traceback goes into its details."""
    if isinstance(error, UserError):
        return error.failure
    details = "".join(traceback.format_exception(error))
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
        return Failure(
            Message(QT_TRANSLATE_NOOP("Message", "There is not enough memory for this run.")),
            Message(
                QT_TRANSLATE_NOOP(
                    "Message",
                    "Choose a smaller batch size or close other apps, then start again. The "
                    "epochs finished so far are kept.",
                )
            ),
            details,
        )
    return Failure(
        Message(QT_TRANSLATE_NOOP("Message", "The run stopped because of an unexpected error.")),
        Message(
            QT_TRANSLATE_NOOP(
                "Message",
                "Start again, on another device if it happens twice. The epochs finished so far "
                "are kept. Please report it with the copied diagnostics.",
            )
        ),
        details,
    )
