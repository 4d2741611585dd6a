"""What PyTorch, Metal and the system say when something breaks, and what the user reads instead.

Everything is recognised by its text or its signal, since MPS raises plain RuntimeErrors and many
faults in Metal end the process. No torch here: the window reads a dead engine's last words with
the same table.
"""

from __future__ import annotations

import re
import signal

import msgspec

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, Topic


class Fault(msgspec.Struct, frozen=True):
    """One kind of fault: the pattern that finds it, and the two sentences about it."""

    name: str
    pattern: re.Pattern[str]
    what: str
    remedy: str
    topic: Topic
    blames_device: bool = True

    def failure(self, details: str, **values: str) -> Failure:
        """Return it as the user reads it; ``values`` fill the places in the two sentences."""
        return Failure(
            Message(self.what, dict(values)),
            Message(self.remedy, dict(values)),
            details,
            self.topic,
            self.blames_device,
        )


_ANOTHER_DEVICE = QT_TRANSLATE_NOOP(
    "Message", "Train on the CPU. The epochs finished so far are kept."
)
_OUR_FAULT = QT_TRANSLATE_NOOP(
    "Message",
    "Train on the CPU, and please report it with the copied diagnostics: it is a fault of Metal "
    "Trainer. The epochs finished so far are kept.",
)


def _texts(*texts: str) -> re.Pattern[str]:
    return re.compile("|".join(texts), re.IGNORECASE)


# In the order in which they are tried: what is special comes before what is general.
FAULTS = (
    Fault(
        "no_memory_at_all",
        # A virtual machine has no GPU memory: it fails at the first byte.
        _texts(r"MPS allocated: 0 bytes, .*Tried to allocate 0 bytes"),
        QT_TRANSLATE_NOOP("Message", "The GPU has no memory that this app may use."),
        QT_TRANSLATE_NOOP(
            "Message",
            "That is so in a virtual machine and in a remote session. Train on the CPU, or start "
            "Metal Trainer directly on the Mac.",
        ),
        "unavailable",
    ),
    Fault(
        "out_of_memory",
        _texts(
            r"out of memory",
            r"Invalid buffer size",
            r"can't allocate memory",
            r"not enough memory: you tried to allocate",
            r"CUBLAS_STATUS_ALLOC_FAILED",
            r"kIOGPUCommandBufferCallbackErrorOutOfMemory",
        ),
        QT_TRANSLATE_NOOP("Message", "There is not enough memory for this run."),
        QT_TRANSLATE_NOOP(
            "Message",
            "Choose a smaller batch size or close other apps, then start again. The epochs "
            "finished so far are kept.",
        ),
        "memory",
    ),
    Fault(
        "unsupported_operator",
        _texts(
            r"The operator '(?P<operator>[^']+)' is not currently (?:implemented|supported)",
            r"Could not run '(?P<kernel>aten::[^']+)' with arguments from the 'MPS' backend",
            r"DispatchStub: missing \w+ kernel",
            r"(?:Conv3D|ConvTranspose 3D) is not supported on MPS",
            r"op is supported natively starting from macOS",
            r"by MPS on MacOS 13\+, please upgrade",
        ),
        QT_TRANSLATE_NOOP("Message", "Metal cannot compute one operator of this network{named}."),
        _ANOTHER_DEVICE,
        "operators",
    ),
    Fault(
        "pooling_sizes",
        _texts(r"Adaptive pool MPS: input sizes must be divisible"),
        QT_TRANSLATE_NOOP(
            "Message", "Metal cannot pool pictures of this size in this network evenly."
        ),
        QT_TRANSLATE_NOOP(
            "Message",
            "Train on the CPU, or use pictures of another size. The epochs finished so far are "
            "kept.",
        ),
        "operators",
    ),
    Fault(
        "precision",
        _texts(
            r"MPS framework doesn't support float64",
            r"MPS has no torch\.(?:float64|complex128)",
            r"BFloat16 is (?:not supported on MPS|only supported on MacOS)",
            r"to the MPS backend but it does not have support for that dtype",
            r"Complex types are unsupported on MPS",
        ),
        QT_TRANSLATE_NOOP("Message", "Metal was given numbers of a precision that it lacks."),
        _OUR_FAULT,
        "numbers",
    ),
    Fault(
        "placement",
        _texts(
            r"Placeholder storage has not been allocated on MPS device",
            r"Passed CPU tensor to MPS op",
            r"must be on the same device",
            r"Expected all tensors to be on the same device",
            r"slow_conv2d_forward_mps: input\(device=",
        ),
        QT_TRANSLATE_NOOP("Message", "Data was on the CPU where the GPU expected its own."),
        _OUR_FAULT,
        "operators",
    ),
    Fault(
        "empty_batch",
        _texts(r"Placeholder tensor is empty", r"MPS supports tensors with dimensions <="),
        QT_TRANSLATE_NOOP("Message", "Metal was given data of a shape that it cannot take."),
        _OUR_FAULT,
        "operators",
    ),
    Fault(
        "driver",
        _texts(
            r"MPS command buffer execution failed",
            r"command buffer exited with error status",
            r"kIOGPUCommandBuffer",
            r"CUDA error:",
        ),
        QT_TRANSLATE_NOOP("Message", "The graphics driver reported an error during the run."),
        QT_TRANSLATE_NOOP(
            "Message",
            "Numbers since then cannot be trusted. Go on with the CPU, or restart the computer "
            "and try again. The epochs finished so far are kept.",
        ),
        "garbage",
    ),
    Fault(
        "unavailable",
        _texts(
            r"The MPS backend is supported on MacOS",
            r"MPS backend is unavailable",
            r"MPS backend is only supported on devices with unified memory",
            r"without MPS backend",
            r"not linked with support for mps devices",
            r"no supported Metal GPU",
            r"from the 'MPS' backend",
        ),
        QT_TRANSLATE_NOOP("Message", "Metal cannot be reached from this app."),
        QT_TRANSLATE_NOOP(
            "Message", "Train on the CPU; the device card says why Metal is not there."
        ),
        "unavailable",
    ),
    Fault(
        "numpy",
        _texts(
            r"Numpy is not available",
            r"compiled using NumPy 1\.x cannot be run in",
            r"_ARRAY_API not found",
        ),
        QT_TRANSLATE_NOOP("Message", "The installed NumPy does not fit this PyTorch."),
        QT_TRANSLATE_NOOP(
            "Message", "Install Metal Trainer again: it brings the NumPy that fits, below 2.0."
        ),
        "unavailable",
        blames_device=False,
    ),
)


def recognise(text: str, details: str = "") -> Failure | None:
    """Return what the user reads for an error's text, or None for one that is not known."""
    for fault in FAULTS:
        found = fault.pattern.search(text)
        if found is None:
            continue
        if fault.name != "unsupported_operator":
            return fault.failure(details or text)
        groups = found.groupdict()
        name = groups.get("operator") or groups.get("kernel") or ""
        return fault.failure(details or text, named=f" ({plain_operator(name)})" if name else "")
    return None


def is_out_of_memory(text: str) -> bool:
    """Return whether an error says that memory ran out, on any device and in any wording."""
    found = next((fault.name for fault in FAULTS if fault.pattern.search(text)), "")
    return found == "out_of_memory"


FALLBACK = r"The operator '([^']+)' is not currently supported on the MPS backend"
"""How PyTorch's warning begins when it computes an operator on the CPU instead."""


def plain_operator(name: str) -> str:
    """Shorten "aten::im2col.out" to "im2col"."""
    return name.partition("::")[2].partition(".")[0] or name


_GARBAGE = re.compile(
    r"command buffer exited with error status|kIOGPUCommandBuffer"
    r"|Impacting Interactivity \(|Ignored \(for causing prior/excessive GPU errors\)"
    r"|Insufficient Memory \(0000"
)


def garbage(printed: str) -> str:
    """Return the line on stderr after which results cannot be trusted, or "".

    Up to torch 2.14 a failed command buffer is only printed, by C code: the tensors that it
    should have filled hold garbage and training goes on (pytorch#125954, #193571).
    """
    found = _GARBAGE.search(printed)
    if not found:
        return ""
    # Not ".*" in the pattern: it would take minutes to find nothing in a long line.
    return printed[printed.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()


class GarbageDetector:
    """Finds such a line in what a process prints, which comes in pieces."""

    def __init__(self) -> None:
        """Have found none."""
        self._unfinished = ""
        self.line = ""
        """The first one, or ""."""

    def take(self, printed: bytes) -> bool:
        """Look at what was printed next; return whether the first such line is in it."""
        text = self._unfinished + printed.decode(errors="replace")
        # A line is looked at when it is complete, so that it is quoted whole; or when it is long.
        complete, _, self._unfinished = text.rpartition("\n")
        if len(self._unfinished) > 4000:
            complete, self._unfinished = text, ""
        if self.line or not (found := garbage(complete)):
            return False
        self.line = found
        return True


GARBAGE_NOTICE = QT_TRANSLATE_NOOP(
    "Message",
    "The GPU reported errors: do not trust the numbers of this run. Restart the computer and "
    "repeat it, or train on the CPU.",
)

# Last words of a process that a signal ended. Found in its stderr, first match first.
_LAST_WORDS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        _texts(r"OMP: Error #15"),
        QT_TRANSLATE_NOOP("Message", "Two copies of the same library are in the app's way."),
        QT_TRANSLATE_NOOP("Message", "Install Metal Trainer again, in a folder of its own."),
    ),
    (
        _texts(
            r"Completed handler provided after commit call",
            r"commit an already committed command buffer",
            r"command encoder is already encoding",
        ),
        QT_TRANSLATE_NOOP("Message", "The graphics driver lost track of its work and stopped."),
        "",
    ),
    (
        _texts(r"XPC_ERROR_CONNECTION_INVALID", r"objc\[.*fork\(\)"),
        QT_TRANSLATE_NOOP("Message", "Metal's compiler could not be reached from the engine."),
        "",
    ),
    (
        _texts(r"failed assertion", r"MPSNDArray"),
        QT_TRANSLATE_NOOP("Message", "Metal refused a computation and stopped the engine."),
        "",
    ),
    (
        _texts(r"terminating (?:with|due to) uncaught exception", r"terminate called"),
        QT_TRANSLATE_NOOP("Message", "PyTorch failed deep inside and stopped the engine."),
        "",
    ),
)


def signal_name(exit_code: int | None) -> str:
    """Return the name of the signal that ended a process, or "" if it ended by itself.

    Python reports a signal as a negative number, a shell in between as 128 plus it.
    """
    if exit_code is None or 0 <= exit_code <= 128:
        return ""
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if exit_code < 0 else ""


def describe_end(exit_code: int | None, stderr: str, *, had_job: bool) -> Failure:
    """Return what the user reads when an engine ended that should have gone on."""
    name = signal_name(exit_code)
    what, special_remedy = "", ""
    if name != "SIGKILL":
        found = (entry for entry in _LAST_WORDS if entry[0].search(stderr))
        _, what, special_remedy = next(found, (None, "", ""))
    if not what and name == "SIGKILL":
        what = QT_TRANSLATE_NOOP(
            "Message", "The system ended the training engine, most often because memory ran out."
        )
    elif not what and name:
        what = QT_TRANSLATE_NOOP(
            "Message", "The training engine crashed inside PyTorch or the graphics driver."
        )
    elif not what:
        what = QT_TRANSLATE_NOOP("Message", "The training engine ended unexpectedly.")
    if special_remedy:
        remedy = special_remedy
    elif had_job:
        remedy = QT_TRANSLATE_NOOP(
            "Message",
            "The epochs finished so far are kept, and the engine starts anew. Press Start to "
            "try again; if it happens twice, choose a smaller batch size or another device.",
        )
    else:
        remedy = QT_TRANSLATE_NOOP("Message", "It starts anew; you need not do anything.")
    ended = name or f"exit code {exit_code}"
    return Failure(
        Message(what),
        Message(remedy),
        f"engine: {ended}\n{stderr}",
        "memory" if name == "SIGKILL" else "crash",
        blames_device=True,
    )
