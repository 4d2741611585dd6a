"""How much memory a run needs before it begins, and whether it grows while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import torch
from torch import nn

from macapp.messages import QT_TRANSLATE_NOOP, Message
from macapp.protocol import RunNotice

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

    from macapp.engine.devices import Device

GIB = 2**30
WARM_EPOCHS = 2
"""Compiled graphs and caches fill up in the first epochs; what grows later may grow for ever."""


def step_bytes(
    network: nn.Module,
    optimizer: Optimizer,
    images: Tensor,
    labels: Tensor,
    take_step: Callable[[nn.Module, Optimizer, Tensor, Tensor], Tensor],
) -> int:
    """Take a step and return the bytes of tensors that it holds at its peak, roughly.

    Counted are weights, gradients, what the optimizer remembers, the batch, what the forward
    pass keeps for the backward pass, and three times the largest of those, for what comes and
    goes in between. Workspaces of the device's libraries are not in it.
    """
    kept: dict[int, int] = {}  # by storage, since views share one
    held: list[Tensor] = []  # so that no storage's address is used twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        take_step(network, optimizer, images, labels)
    parameters = list(network.parameters())
    for parameter in parameters:  # saved for backward, too, but counted below
        kept.pop(parameter.untyped_storage()._cdata, None)
    state = [
        value
        for memory in optimizer.state.values()
        for value in memory.values()
        if isinstance(value, torch.Tensor)
    ]
    weights = sum(tensor.nbytes for tensor in (*parameters, *network.buffers(), *state))
    gradients = sum(parameter.nbytes for parameter in parameters)
    batch = images.nbytes + labels.nbytes
    kept.pop(images.untyped_storage()._cdata, None)
    return weights + gradients + batch + sum(kept.values()) + 3 * max(kept.values(), default=0)


class Growth:
    """Watches the memory of this process from epoch to epoch.

    Metal's caches grow with every new shape, and several versions lose memory at each step; what
    PyTorch itself counts does not show it (pytorch#164299, #132596), so the process is looked at.
    """

    def __init__(self, job: int) -> None:
        """Know nothing yet."""
        self._job = job
        self._first_bytes = 0
        self._epochs = 0

    def after_epoch(self, epoch: int, device: Device) -> RunNotice | None:
        """Return a notice if the process holds 1 GB and a half more than when it was warm."""
        memory = device.memory()
        now = process_bytes() + (memory.reserved if memory is not None else 0)
        self._epochs += 1
        if self._epochs <= WARM_EPOCHS:
            self._first_bytes = now
            return None
        grown = now - self._first_bytes
        if grown < max(GIB, self._first_bytes // 2):
            return None
        text = QT_TRANSLATE_NOOP(
            "Message",
            "The engine's memory has grown by {grown} GB up to epoch {epoch}: some versions of "
            "Metal lose memory. If the computer becomes slow, stop: the memory comes back.",
        )
        message = Message(text, {"grown": f"{grown / GIB:.1f}", "epoch": epoch})
        return RunNotice(self._job, "growth", message, "memory")


def process_bytes() -> int:
    """Return the memory that this process holds, 0 if the system does not say."""
    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return 0
