"""What is looked at while a run goes on, since a GPU can be wrong without saying so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from macapp.messages import QT_TRANSLATE_NOOP, Failure, Message, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from macapp.engine.devices import Device
    from macapp.protocol import TrainingConfig

PARITY = 0.05
"""Share of the spread of a network's answers that is no longer rounding. float32 sums in another
order differ by 1e-6 of it, TF32 convolutions by 1e-3."""
PARITY_PICTURES = 64


def check_finite(losses: NDArray[np.float32], first_step: int, config: TrainingConfig) -> None:
    """Look for a loss that is no number.

    Raises:
        UserError: there is one; it names the step, counted from ``first_step``.
    """
    broken = np.flatnonzero(~np.isfinite(losses))
    if not len(broken):
        return
    what = QT_TRANSLATE_NOOP(
        "Message", "The loss is no longer a number since step {step}, so the run was stopped."
    )
    remedy = QT_TRANSLATE_NOOP(
        "Message",
        "Lower the learning rate, for example to {rate}, and start again. The epochs finished "
        "so far are kept.",
    )
    raise UserError(
        Failure(
            Message(what, {"step": first_step + int(broken[0])}),
            Message(remedy, {"rate": f"{config.learning_rate / 10:g}"}),
            f"losses from step {first_step}: {losses.tolist()}",
            "numbers",
        )
    )


def check_parity(
    reference: nn.Module, network: nn.Module, batch: tuple[Tensor, Tensor], device: Device
) -> None:
    """Compare what a network says of some pictures with the same network on the CPU.

    Not the losses: before training, those of any pictures are alike. Dropout and batch statistics
    are left out (both in evaluation mode), since random numbers differ between devices. ``batch``
    lies on ``device``; a part of it is enough.

    Raises:
        UserError: the device computes something else.
    """
    images = batch[0][:PARITY_PICTURES].contiguous()
    was_training = network.training
    network.eval()
    with torch.no_grad():
        there = device.read(network(images))
        here = reference.eval()(device.read(images))
    network.train(was_training)
    spread, difference = float(here.std()), float((there - here).abs().max())
    if not np.isfinite(spread) or difference <= PARITY * spread:
        return
    what = QT_TRANSLATE_NOOP(
        "Message",
        "The GPU computes something else than the CPU for the same pictures: it cannot be trusted "
        "with this network.",
    )
    raise UserError(
        Failure(
            Message(what),
            _on_the_cpu(),
            f"log-probabilities differ by up to {difference:g}, their spread is {spread:g}",
            "numbers",
            blames_device=True,
        )
    )


class MovementCheck:
    """Whether the first step moved every parameter that it should.

    Adam, AdamW, Adagrad and Rprop have left parameters unchanged on MPS without a word
    (pytorch#118115, #118117).
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Keep a copy of the parameters before the step."""
        self._parameters = parameters
        self._before = [parameter.detach().clone() for parameter in parameters]

    def check(self, config: TrainingConfig, device: Device) -> None:
        """Compare after the step; gradients must still be there.

        A step is expected to show when it is more than float32 can lose beside the parameter:
        the learning rate times the gradient for SGD, the learning rate itself for Adam.

        Raises:
            UserError: a parameter with such a gradient did not change at all.
        """
        facts = []
        for before, parameter in zip(self._before, self._parameters, strict=True):
            if parameter.grad is None:
                continue
            moved = (parameter.detach() - before).abs().max()
            facts += [moved, parameter.grad.abs().max(), before.abs().max()]
        if not facts:
            return
        numbers = device.read(torch.stack(facts)).reshape(-1, 3).tolist()
        for index, (moved, gradient, size) in enumerate(numbers):
            step = config.learning_rate * (gradient if config.optimizer == "sgd" else 1.0)
            if moved == 0 and gradient > 1e-7 and step > 1e-5 * size:
                self._fail(index, gradient)

    @staticmethod
    def _fail(index: int, gradient: float) -> None:
        what = QT_TRANSLATE_NOOP(
            "Message", "The GPU left a part of the network unchanged in the first step."
        )
        raise UserError(
            Failure(
                Message(what),
                _on_the_cpu(),
                f"parameter {index} has a gradient up to {gradient:g} and did not change",
                "numbers",
                blames_device=True,
            )
        )


def _on_the_cpu() -> Message:
    return Message(
        QT_TRANSLATE_NOOP(
            "Message",
            "Train on the CPU, and please report it with the copied diagnostics: a newer PyTorch "
            "or macOS may compute it right.",
        )
    )
