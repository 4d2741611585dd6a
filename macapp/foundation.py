"""Three things that only Apple's NSProcessInfo tells or does, through ctypes; elsewhere nothing.

Every function returns None, and does nothing, on another system or when anything is missing.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from functools import cache
from typing import Any, Protocol

# NSProcessInfo.h: NSActivityUserInitiated, which holds off App Nap and, by its bit 1 << 20
# (NSActivityIdleSystemSleepDisabled), the sleep of an idle Mac.
USER_INITIATED = 0x00FFFFFF


class ProcessInfo(Protocol):
    """What this module needs of NSProcessInfo; a test hands in its own."""

    def call(self, selector: str) -> int:
        """Send a message without arguments that returns a number."""

    def begin(self, options: int, reason: str) -> object:
        """Begin an activity; return its token, retained."""

    def end(self, token: object) -> None:
        """End an activity and release its token."""


class _ObjectiveC:
    """NSProcessInfo by way of the Objective-C runtime."""

    def __init__(self) -> None:
        runtime = ctypes.CDLL(ctypes.util.find_library("objc") or "/usr/lib/libobjc.A.dylib")
        ctypes.CDLL("/System/Library/Frameworks/Foundation.framework/Foundation")
        runtime.objc_getClass.restype = ctypes.c_void_p
        runtime.objc_getClass.argtypes = [ctypes.c_char_p]
        runtime.sel_registerName.restype = ctypes.c_void_p
        runtime.sel_registerName.argtypes = [ctypes.c_char_p]
        self._runtime = runtime
        self._info = self._send("NSProcessInfo", "processInfo")

    def call(self, selector: str) -> int:
        return int(self._send(self._info, selector, restype=ctypes.c_long) or 0)

    def begin(self, options: int, reason: str) -> object:
        text = self._send(
            "NSString",
            "stringWithUTF8String:",
            (ctypes.c_char_p, reason.encode()),
        )
        token = self._send(
            self._info,
            "beginActivityWithOptions:reason:",
            (ctypes.c_uint64, options),
            (ctypes.c_void_p, text),
        )
        return self._send(token, "retain")

    def end(self, token: object) -> None:
        self._send(self._info, "endActivity:", (ctypes.c_void_p, token))
        self._send(token, "release")

    def _send(
        self, receiver: Any, selector: str, *arguments: tuple[Any, Any], restype: Any = None
    ) -> Any:
        """Send a message. The function's type must be exact: arm64 passes arguments by it."""
        if isinstance(receiver, str):
            receiver = self._runtime.objc_getClass(receiver.encode())
        kinds = [kind for kind, _ in arguments]
        prototype = ctypes.CFUNCTYPE(
            restype or ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *kinds
        )
        send = prototype(("objc_msgSend", self._runtime))
        name = self._runtime.sel_registerName(selector.encode())
        return send(receiver, name, *(value for _, value in arguments))


@cache
def process_info() -> ProcessInfo | None:
    """Return NSProcessInfo on macOS, None elsewhere."""
    if sys.platform != "darwin":
        return None
    try:
        return _ObjectiveC()
    except Exception:  # whatever it is: nothing here is worth an app that does not start
        return None


def thermal_state() -> int | None:
    """Return 0 (nominal) to 3 (critical)."""
    return _ask("thermalState")


def is_low_power_mode() -> bool | None:
    """Return whether Low Power Mode is on (macOS 12 and later)."""
    answer = _ask("isLowPowerModeEnabled")
    # A BOOL fills one byte of the register.
    return None if answer is None else bool(answer & 0xFF)


def _ask(selector: str) -> int | None:
    info = process_info()
    try:
        return None if info is None else info.call(selector)
    except Exception:
        return None
