"""An MPS device that computes on the CPU, so that its rules are tested on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from macapp.engine.devices import Mps

if TYPE_CHECKING:
    import torch


class FakeMps(Mps):
    """Refuses what MPS must never be asked, counts what it is asked."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.reads = 0

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        self.reads += 1
        return super().read(tensor)

    def free_bytes(self) -> int:
        return 2**34
