"""One "Article" epoch on the CPU: the article's loop, a bare loop, our engine, our app.

``python -m tests.benchmarks.epoch [--rounds 5]``. Each side runs in a fresh process for two
epochs, of which the second counts. The sides take turns, in an order that is reversed every
round, since the speed of a shared machine drifts. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS = 2


def article_loop(_folder: Path) -> float:
    """(a) The article's own loop."""
    return _printed(["-m", "tests.benchmarks.loops", "article", str(EPOCHS)])


def bare_loop(_folder: Path) -> float:
    """(b) The fastest bare loop over tensors in memory."""
    return _printed(["-m", "tests.benchmarks.loops", "bare", str(EPOCHS)])


def engine(folder: Path) -> float:
    """(c) Our engine without a window."""
    _run(["-m", "macapp", "train", "--device", "cpu", *_epochs(), "--output", str(folder)])
    result = json.loads((folder / "result.json").read_text())
    return float(result["epochs"][-1]["seconds"])


def app(folder: Path) -> float:
    """(d) Our engine with the window open, plotting."""
    report = folder / "report.json"
    _run(["-m", "macapp", "--self-test", str(report), "--device", "cpu", *_epochs()])
    return float(json.loads(report.read_text())["epoch_seconds"][-1])


SIDES: dict[str, Callable[[Path], float]] = {
    "a": article_loop,
    "b": bare_loop,
    "c": engine,
    "d": app,
}


def _epochs() -> list[str]:
    return ["--epochs", str(EPOCHS)]


def _printed(arguments: list[str]) -> float:
    return float(json.loads(_run(arguments).splitlines()[-1])[-1])


def _run(arguments: list[str]) -> str:
    environment = os.environ | {"QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen")}
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    return done.stdout


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="abcd", help="for example cd")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {side: [] for side in options.sides}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = options.sides if number % 2 == 0 else options.sides[::-1]
            for side in order:
                seconds[side].append(SIDES[side](Path(folder)))
            latest = {side: round(values[-1], 3) for side, values in seconds.items()}
            print(f"round {number + 1}: {latest}", flush=True)
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    ratios = {
        f"{over}/{under}": round(medians[over] / medians[under], 3)
        for over, under in ("ac", "cb", "dc")
        if over in medians and under in medians
    }
    rounded = {side: round(value, 3) for side, value in medians.items()}
    print(json.dumps({"medians": rounded, "ratios": ratios}))


if __name__ == "__main__":
    main()
