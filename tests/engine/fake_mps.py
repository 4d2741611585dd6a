"""An MPS device that computes on the CPU, so that its rules are tested on any machine."""

from __future__ import annotations

import torch
from torch import nn

from macapp.engine.devices import Mps


class FakeMps(Mps):
    """Refuses what MPS must never be asked, counts what it is asked."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.reads = 0

    def place(self, network: nn.Module) -> nn.Module:
        placed = super().place(network)
        placed.register_forward_pre_hook(self._check_batch)
        return placed

    @staticmethod
    def _check_batch(_network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        (images,) = inputs
        assert images.is_contiguous()
        assert images.storage_offset() == 0
        assert images.dtype == torch.float32

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        self.reads += 1
        return super().read(tensor)

    def free_bytes(self) -> int:
        return 2**34
