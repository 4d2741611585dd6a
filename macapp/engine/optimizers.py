"""The optimizers, fused where the device has it and a probe shows that it computes the same."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from macapp.protocol import TrainingConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.optim import Optimizer

    from macapp.engine.devices import Device


def build(config: TrainingConfig, parameters: Iterable[nn.Parameter], device: Device) -> Optimizer:
    """Return the optimizer of ``config`` for parameters that lie on ``device``."""
    fused = device.may_fuse_optimizer() and _fused_equals_plain(
        config.optimizer, str(device.torch_device)
    )
    return _make(config, list(parameters), fused=fused)


def plain(config: TrainingConfig, parameters: list[nn.Parameter]) -> Optimizer:
    """Return the optimizer that takes one parameter after the other, as MPS does by default."""
    optimizer = _make(config, parameters, fused=False)
    for group in optimizer.param_groups:
        group["foreach"] = False
    return optimizer


def _make(config: TrainingConfig, parameters: list[nn.Parameter], *, fused: bool) -> Optimizer:
    # Fused is passed only where it is wanted: torch 2.2 knows no fused SGD.
    options = {"fused": True} if fused else {}
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            **options,
        )
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    kind: Callable[..., Optimizer] = kinds[config.optimizer]
    return kind(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, **options)


@cache
def _fused_equals_plain(optimizer: str, torch_device: str) -> bool:
    """Take two steps with each form from the same weights, and compare all that they moved.

    Two steps, since momentum and Adam's averages act only from the second one. Any error means
    that this torch has no fused form here.
    """
    config = TrainingConfig(optimizer=optimizer, weight_decay=0.01)  # type: ignore[arg-type]
    start = torch.linspace(-1.0, 1.0, 64)

    def moved(*, fused: bool) -> torch.Tensor:
        parameter = nn.Parameter(start.clone().to(torch_device))
        stepper = _make(config, [parameter], fused=fused)
        for step in (1, 2):
            parameter.grad = torch.cos(step * start).to(torch_device)
            stepper.step()
        return parameter.detach().cpu()

    try:
        fused, plain = moved(fused=True), moved(fused=False)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return False
    return bool(torch.allclose(fused, plain, rtol=1e-5, atol=1e-7) and not fused.equal(start))
