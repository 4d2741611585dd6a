"""Test accuracy of the preset "Faster" and of its neighbours, over many seeds.

``python -m tests.benchmarks.presets [--seeds 10]`` trains each candidate for 2 epochs and prints
lowest, median and highest accuracy in percent; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics

import msgspec

from macapp import resources
from macapp.engine import training
from macapp.engine.diagnosis import DeviceSurvey
from macapp.protocol import PRESETS, EpochDone, TrainingConfig

FASTER = PRESETS["faster"]
CANDIDATES: dict[str, TrainingConfig] = {
    "faster": FASTER,
    "rate x 2": msgspec.structs.replace(FASTER, learning_rate=FASTER.learning_rate * 2),
    "rate x 4": msgspec.structs.replace(FASTER, learning_rate=FASTER.learning_rate * 4),
    "momentum 0.5, rate x 4": msgspec.structs.replace(
        FASTER, momentum=0.5, learning_rate=FASTER.learning_rate * 4
    ),
    "adam 0.003": msgspec.structs.replace(FASTER, optimizer="adam", learning_rate=0.003),
}


def accuracy(config: TrainingConfig) -> float:
    """Return the test accuracy in percent after the last epoch."""
    network, dataset, device = training.assemble(config, resources.folder(), DeviceSurvey())
    events = training.train(config, network, dataset, device)
    return [100 * event.test_accuracy for event in events if isinstance(event, EpochDone)][-1]


def main() -> None:
    """Train, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(1, parser.parse_args().seeds + 1)
    lowest = {}
    for name, candidate in CANDIDATES.items():
        found = [accuracy(msgspec.structs.replace(candidate, seed=seed)) for seed in seeds]
        lowest[name] = round(min(found), 2)
        middle = statistics.median(found)
        print(f"{name:24} {min(found):6.2f} {middle:6.2f} {max(found):6.2f}", flush=True)
    print(json.dumps({"lowest": lowest}))


if __name__ == "__main__":
    main()
