"""A network's weights on disk, and the whole state of a run, to go on from."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as to_safetensors

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from macapp.engine.devices import Device

FORMAT = 1


@dataclass(frozen=True)
class State:
    """Where a run stands between two epochs; every tensor is on the CPU."""

    network: dict[str, Tensor]
    optimizer: dict[int, dict[str, Any]]
    """What the optimizer remembers of each parameter, by the parameter's index."""
    shuffle: Tensor
    """The state of the generator that shuffles the pictures."""
    random: Tensor
    """The state of torch's default generator on the CPU."""
    epoch: int
    """The last complete one."""
    step: int
    batch_size: int


def take(
    network: nn.Module,
    optimizer: Optimizer,
    shuffle: torch.Generator,
    device: Device,
    *,
    epoch: int,
    step: int,
    batch_size: int,
) -> State:
    """Copy the state of a run to the CPU: one read of the device for each type of number."""
    weights = network.state_dict()
    memories: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    tensors = [*weights.values()]
    for memory in memories.values():
        tensors += [value for value in memory.values() if isinstance(value, torch.Tensor)]
    copies = iter(_read_all(tensors, device))
    return State(
        network={name: next(copies) for name in weights},
        optimizer={
            index: {
                name: next(copies) if isinstance(value, torch.Tensor) else value
                for name, value in memory.items()
            }
            for index, memory in memories.items()
        },
        shuffle=shuffle.get_state(),
        random=torch.get_rng_state(),
        epoch=epoch,
        step=step,
        batch_size=batch_size,
    )


def _read_all(tensors: Sequence[Tensor], device: Device) -> list[Tensor]:
    """Return copies on the CPU, contiguous, in order."""
    copies: list[Tensor] = [torch.empty(0)] * len(tensors)
    for dtype in {tensor.dtype for tensor in tensors}:
        for is_here in (True, False):  # Adam counts its steps on the CPU
            chosen = [
                index
                for index, tensor in enumerate(tensors)
                if tensor.dtype == dtype and (tensor.device.type == "cpu") == is_here
            ]
            if not chosen:
                continue
            flat = torch.cat([tensors[index].detach().reshape(-1) for index in chosen])
            parts = device.read(flat).split([tensors[index].numel() for index in chosen])
            for index, part in zip(chosen, parts, strict=True):
                copies[index] = part.reshape(tensors[index].shape)
    return copies


def restore(
    state: State, network: nn.Module, optimizer: Optimizer, shuffle: torch.Generator
) -> None:
    """Put a run, on any device, back to a state; the state itself stays as it is."""
    network.load_state_dict(state.network)
    current = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    memories = {
        index: {name: _like(parameters[index], value) for name, value in memory.items()}
        for index, memory in state.optimizer.items()
    }
    # The groups stay: whether steps are fused depends on the device.
    optimizer.load_state_dict({"state": memories, "param_groups": current["param_groups"]})
    shuffle.set_state(state.shuffle)
    torch.set_rng_state(state.random)


def _like(parameter: Tensor, value: object) -> object:
    """Return a copy in the parameter's place and layout: fused steps need both to agree."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape != parameter.shape:
        return value.clone()
    return torch.empty_like(parameter).copy_(value)


def save(state: State, path: Path) -> None:
    """Write a state; a failure leaves the file that was there before.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            torch.save({"format": FORMAT, **asdict(state)}, file)
        partial.replace(path)
    except RuntimeError as error:  # torch's zip writer, when the disk is full
        raise OSError(str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def load(path: Path) -> State:
    """Read a state. Nothing in the file is executed.

    Raises:
        UserError: the file is not there, or is not such a state.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        return State(**content)
    except Exception as error:
        what = QT_TRANSLATE_NOOP("Message", "The state of the run can no longer be read.")
        remedy = QT_TRANSLATE_NOOP("Message", "Press Start to begin anew.")
        raise UserError(Failure(Message(what), Message(remedy), str(error))) from error


def save_weights(network: nn.Module | None, path: Path) -> None:
    """Write the network's weights to ``path`` as safetensors; a failure leaves no half file.

    Raises:
        UserError: there is no network yet, or the file cannot be written.
    """
    if network is None:
        raise UserError(
            Failure(
                Message(QT_TRANSLATE_NOOP("Message", "There is no trained network to save.")),
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message",
                        "Train one first. A network is lost when the training engine restarts.",
                    )
                ),
            )
        )
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()
    }
    partial = path.with_name(path.name + ".part")
    try:
        try:
            with partial.open("wb") as file:
                file.write(to_safetensors(tensors))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            Failure(
                Message(
                    QT_TRANSLATE_NOOP("Message", "The network could not be saved as {path}."),
                    {"path": str(path)},
                ),
                Message(
                    QT_TRANSLATE_NOOP(
                        "Message", "Choose a folder that you may write to and that has room."
                    )
                ),
                str(error),
            )
        ) from error
