"""Looks at the computer while the window is already there."""

from __future__ import annotations

from PySide6.QtCore import QThread, Signal

from macapp import machine


class MachineReader(QThread):
    """Finds out what this computer is, once; some of the commands take a second."""

    found = Signal(object)
    """A `Machine`."""

    def run(self) -> None:
        """Collect, and tell."""
        self.found.emit(machine.collect())
