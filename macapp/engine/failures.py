"""From an exception to what the user reads."""

from __future__ import annotations

import traceback

from macapp import faults
from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError


def describe(error: BaseException) -> Failure:
    """Return the failure to show for ``error``; the traceback goes into its details."""
    if isinstance(error, UserError):
        return error.failure
    details = "".join(traceback.format_exception(error))
    text = "out of memory" if isinstance(error, MemoryError) else f"{error}"
    known = faults.recognise(text, details)
    if known is not None:
        return known
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


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out.

    By text, since MPS raises a plain RuntimeError for it, CUDA a subclass and the CPU's
    allocator a third thing.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and faults.is_out_of_memory(str(error))
    )
