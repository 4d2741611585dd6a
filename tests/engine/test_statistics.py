"""The statistics of a comparison, calibrated with drawn block times."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp.comparisons import Interval
from macapp.engine import statistics
from macapp.engine.statistics import crossing, drift, speed_up, spread, verdict

DRAWS = 1000
times = st.floats(1e-6, 1e6)


def draw(random: np.random.Generator, blocks: int, ratio: float) -> tuple[list[float], list[float]]:
    """Draw the times of two contenders on a shared computer, in the order A B B A A B B A ….

    What happens to the computer happens to whoever runs at that time: a drift over the whole
    comparison, in half of them a slow period of up to a quarter of it, and an outlier in one block
    of 20. Each block has log-normal noise of 3 %.
    """
    order = np.array([(0, 1) if pair % 2 == 0 else (1, 0) for pair in range(blocks)]).ravel()
    count = 2 * blocks
    logarithm = np.linspace(0, random.normal(0, 0.06), count) + random.normal(0, 0.03, count)
    logarithm += (random.random(count) < 0.05) * random.exponential(0.3, count)
    if random.random() < 0.5:
        length = int(random.integers(1, count // 4 + 1))
        begin = int(random.integers(0, count - length + 1))
        logarithm[begin : begin + length] += random.uniform(0.1, 0.7)
    seconds = np.exp(logarithm)
    return (ratio * seconds[order == 0]).tolist(), seconds[order == 1].tolist()


def intervals(blocks: int, ratio: float) -> list[Interval]:
    random = np.random.default_rng(1)
    return [speed_up(*draw(random, blocks, ratio)) for _ in range(DRAWS)]


@pytest.mark.parametrize("blocks", [6, 12, 24])
def test_a_contender_against_itself_shows_no_difference(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)  # a quarter of the time, the same result
    found = [verdict(interval) for interval in intervals(blocks, 1.0)]
    assert found.count("no_difference") >= 0.93 * DRAWS


@pytest.mark.parametrize("ratio", [1.0, 1.1, 3.4])
@pytest.mark.parametrize("blocks", [6, 12, 24])
def test_the_interval_covers_the_truth_as_often_as_it_says(
    blocks: int, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    covered = sum(interval.low <= ratio <= interval.high for interval in intervals(blocks, ratio))
    assert 0.92 * DRAWS <= covered <= 0.98 * DRAWS


@pytest.mark.parametrize("blocks", [16, 24])
def test_a_true_tenth_is_found(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    found = [verdict(interval) for interval in intervals(blocks, 1.1)]
    assert found.count("faster") >= 0.90 * DRAWS
    assert found.count("slower") == 0


def test_the_same_times_give_the_same_interval() -> None:
    random = np.random.default_rng(3)
    a, b = draw(random, 10, 2.0)
    assert speed_up(a, b) == speed_up(a, b)
    there, back = speed_up(a, b), speed_up(b, a)
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high, rel=0.01)


@given(st.lists(st.tuples(times, times), min_size=2, max_size=30))
def test_any_times_give_an_interval_around_the_value(pairs: list[tuple[float, float]]) -> None:
    found = speed_up([a for a, _ in pairs], [b for _, b in pairs])
    assert 0 < found.low <= found.value <= found.high < math.inf


@pytest.mark.parametrize(
    ("a", "b"), [([], []), ([1.0], [1.0]), ([1.0, 2.0], [1.0, 0.0]), ([1.0, math.nan], [1.0, 2.0])]
)
def test_times_that_are_none_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        speed_up(a, b)


def test_a_block_without_its_pair_is_left_out() -> None:
    assert speed_up([2.0, 2.0, 9.0], [1.0, 1.0]) == Interval(2.0, 2.0, 2.0)


def test_verdicts() -> None:
    assert verdict(Interval(1.2, 1.1, 1.3)) == "faster"
    assert verdict(Interval(0.8, 0.7, 0.9)) == "slower"
    assert verdict(Interval(1.02, 0.99, 1.3)) == "no_difference"
    assert verdict(Interval(1.0, 1.0, 1.0)) == "no_difference"


def test_spread_is_median_and_quartiles() -> None:
    found = spread([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 4.0)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_drift() -> None:
    assert drift([1.0] * 5) == 0.0
    assert drift([1.0, 1.0, 5.0, 1.0, 1.2, 1.2]) == pytest.approx(0.2)
    assert drift([2.0] * 4 + [1.0] * 4) == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("reference", "contender", "expected"),
    [
        ([100, 100, 100], [50, 50, 99], None),
        ([100, 100, 100], [200, 200, 200], 16.0),
        ([100, 100, 100], [50, 200, 400], 16 * math.sqrt(2) * math.sqrt(2) / math.sqrt(2)),
        ([100, 100, 100], [120, 50, 200], 32 * math.sqrt(2)),  # wins, loses, wins for good
        ([], [], None),
    ],
)
def test_the_crossing(
    reference: list[float], contender: list[float], expected: float | None
) -> None:
    sizes = [16, 32, 64][: len(reference)]
    found = crossing(sizes, reference, contender)
    assert found == (expected if expected is None else pytest.approx(expected))
