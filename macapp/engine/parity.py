"""Whether two contenders compute the same.

Two devices add the same numbers in different orders, so their float32 results differ, and training
amplifies it: at some step a maximum falls on another pixel, and from then on two runs part as two
seeds would. The losses after 100 steps therefore tell little: on the CPU alone, another order
of the pictures within each batch (which changes no sum but for its rounding) moved single losses
by up to 90 %. What tells is the beginning, before anything is amplified. Measured on a CPU
(`tests/benchmarks/parity.py`): 6 settings, 3 seeds, 8 orders, one thread against two, and another
memory layout, the largest of all:

    relative difference of the losses of the first two steps        2e-7
    relative change of a parameter in the first step, L2            2e-3 (median 1e-5)

The largest of the second is a maximum that fell on another pixel. The limits are 500 and 5 times
these: a GPU's sums are longer than a CPU's, while a wrong convolution is off by 0.1 and more.

An optimizer that goes wrong only later shows in the mean of the 100 losses. Its limit is 3 times
what the orders of summation do to it for this very job, measured in the same comparison, but at
least 5 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file

from macapp.comparisons import Parity
from macapp.messages import QT_TRANSLATE_NOOP, Message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from macapp.engine.contender import Trained

FIRST_LOSSES = 1e-4
FIRST_UPDATE = 1e-2
MEAN_LOSS = 0.05
MEAN_LOSS_FACTOR = 3.0


def judge(
    names: tuple[str, str],
    reference: Trained | None,
    contender: Trained | None,
    reordered: Sequence[Trained],
    reference_update: Path,
    contender_update: Path,
) -> Parity:
    """Compare the first steps of a contender with those of the reference.

    Args:
        names: of the reference and of the contender.
        reference: its first steps; None if it failed.
        contender: the same.
        reordered: those of the reference in other orders of summation.
        reference_update: file with the change of each parameter in the first step.
        contender_update: the same.
    """
    if reference is None or contender is None:
        return Parity(name=names[1], reference=names[0])
    theirs, ours = np.array(reference.losses), np.array(contender.losses)
    first_losses = float(_relative(ours[:2], theirs[:2]).max())
    worst, first_update = _updates(load_file(reference_update), load_file(contender_update))
    orders = [np.array(trained.losses) for trained in reordered]
    mean = _relative_mean(ours, theirs)
    mean_limit = max(
        MEAN_LOSS,
        MEAN_LOSS_FACTOR * max((_relative_mean(order, theirs) for order in orders), default=0.0),
    )
    reason = None
    if not np.isfinite(ours).all():
        reason = Message(QT_TRANSLATE_NOOP("Message", "A loss is no number."))
    elif extra := sorted(set(contender.unmoved) - set(reference.unmoved)):
        text = QT_TRANSLATE_NOOP("Message", "{parameter} was never changed.")
        reason = Message(text, {"parameter": extra[0]})
    elif first_losses > FIRST_LOSSES:
        reason = Message(QT_TRANSLATE_NOOP("Message", "The first losses differ."))
    elif first_update > FIRST_UPDATE:
        text = QT_TRANSLATE_NOOP("Message", "The first step changes {parameter} differently.")
        reason = Message(text, {"parameter": worst})
    elif mean > mean_limit:
        reason = Message(QT_TRANSLATE_NOOP("Message", "The losses part on the way."))
    return Parity(
        name=names[1],
        reference=names[0],
        verdict="same" if reason is None else "differs",
        largest_relative_difference=_known(_relative(ours, theirs).max()),
        reordered_relative_difference=_known(
            max((_relative(order, theirs).max() for order in orders), default=np.nan)
        ),
        first_losses_difference=_known(first_losses),
        first_update_difference=_known(first_update),
        mean_loss_difference=_known(mean),
        reason=reason,
    )


def _relative(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    difference: NDArray[np.float64] = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-12)
    return difference


def _relative_mean(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    return float(abs(ours.mean() - theirs.mean()) / max(abs(theirs.mean()), 1e-12))


def _updates(
    theirs: dict[str, NDArray[np.float32]], ours: dict[str, NDArray[np.float32]]
) -> tuple[str, float]:
    """Return the parameter that was changed most differently, and by how much, relative, L2."""
    differences = {
        name: float(np.linalg.norm(ours[name] - change) / max(np.linalg.norm(change), 1e-20))
        for name, change in theirs.items()
    }
    worst = max(differences, key=lambda name: differences[name])
    return worst, differences[worst]


def _known(value: float) -> float | None:
    """JSON has no word for what is no number."""
    return float(value) if np.isfinite(value) else None
