"""Medians, the interval of a speed-up, the batch size from which on a device wins. No torch."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from macapp.comparisons import Interval, SpeedVerdict, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 4000
"""Of the bootstrap: the ends of a 95 % interval then move by less than 1 % of its width."""
SEED = 20_260_101
"""Of the bootstrap, so that the same block times always give the same interval."""


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles.

    Raises:
        ValueError: there are no values.
    """
    if not len(values):
        raise ValueError("no values")
    low, median, high = np.quantile(np.asarray(values, np.float64), [0.25, 0.5, 0.75])
    return Spread(float(median), float(low), float(high))


def speed_up(reference: Sequence[float], contender: Sequence[float]) -> Interval:
    """Return how many times as fast a contender is as the reference.

    The value is the ratio of the median times. The interval is that of the percentile bootstrap
    over pairs of blocks (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter
    13): the two blocks of a pair are neighbours in time, so what slows the computer for a while
    slows both and is drawn together.

    Args:
        reference: seconds a step, one value a block, in the order of measurement.
        contender: the same of the other; blocks with the same index are a pair.

    Raises:
        ValueError: there are fewer than 2 pairs, or a time is not a positive number.
    """
    count = min(len(reference), len(contender))
    slow, fast = (np.asarray(times[:count], dtype=np.float64) for times in (reference, contender))
    if count < 2:
        raise ValueError("fewer than 2 pairs of blocks")
    if not (np.isfinite(slow).all() and np.isfinite(fast).all() and min(*slow, *fast) > 0):
        raise ValueError("a time is not a positive number")
    drawn = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))
    ratios = np.median(slow[drawn], axis=1) / np.median(fast[drawn], axis=1)
    # Resamples vary less than samples, by (n - 1) / n: Hesterberg, What Teachers Should Know about
    # the Bootstrap, The American Statistician 69 (2015), section 5.1.
    normal = NormalDist()
    tail = normal.cdf(normal.inv_cdf((1 - CONFIDENCE) / 2) * math.sqrt(count / (count - 1)))
    low, high = np.quantile(ratios, [tail, 1 - tail])
    value = float(np.median(slow) / np.median(fast))
    # With few blocks the median of all may lie outside of what is drawn by a hair.
    return Interval(value, min(value, float(low)), max(value, float(high)))


def verdict(ratio: Interval) -> SpeedVerdict:
    """Return whether the interval leaves 1 out, and on which side."""
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no_difference"


def drift(times: Sequence[float]) -> float:
    """Return by which share later blocks are slower than earlier ones; below 0: faster.

    The medians of the first and of the last third are compared; fewer than 6 blocks tell nothing
    and give 0.
    """
    third = len(times) // 3
    if third < 2:
        return 0.0
    return float(np.median(times[-third:]) / np.median(times[:third]) - 1)


def crossing(
    batch_sizes: Sequence[int], reference: Sequence[float], contender: Sequence[float]
) -> float | None:
    """Return the batch size from which on a contender is the faster one up to the largest.

    Between two measured sizes the logarithm of the ratio is taken as a straight line over the
    logarithm of the size.

    Args:
        batch_sizes: in increasing order.
        reference: images per second of the reference, one a size.
        contender: the same of the contender.

    Returns:
        The batch size; the smallest one measured if the contender always wins; None if it does
        not win at the largest.
    """
    sizes = np.log(np.asarray(batch_sizes, np.float64))
    gains: NDArray[np.float64] = np.log(
        np.asarray(contender, np.float64) / np.asarray(reference, np.float64)
    )
    if not len(sizes) or gains[-1] <= 0:
        return None
    losing = np.flatnonzero(gains <= 0)
    if not len(losing):
        return float(batch_sizes[0])
    last = int(losing[-1])
    share = -gains[last] / (gains[last + 1] - gains[last])
    return float(np.exp(sizes[last] + share * (sizes[last + 1] - sizes[last])))
