from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from macapp.engine import training
from macapp.engine.diagnosis import DeviceSurvey
from macapp.protocol import PRESETS, EpochDone, TrainingConfig

if TYPE_CHECKING:
    from pathlib import Path


def trained(config: TrainingConfig, resources: Path) -> list[EpochDone]:
    events = training.train(config, *training.assemble(config, resources, DeviceSurvey()))
    return [event for event in events if isinstance(event, EpochDone)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_faster_reaches_97_percent_in_two_epochs(resource_folder: Path, seed: int) -> None:
    config = msgspec.structs.replace(PRESETS["faster"], device="cpu", seed=seed)
    epochs = trained(config, resource_folder)
    assert len(epochs) == 2
    assert epochs[-1].test_accuracy > 0.97


@pytest.mark.slow
def test_article_reaches_98_percent_in_five_epochs(resource_folder: Path) -> None:
    config = msgspec.structs.replace(PRESETS["article"], device="cpu")
    epochs = trained(config, resource_folder)
    assert 0.955 < epochs[0].test_accuracy < 0.97  # the article's range, a little wider
    assert epochs[-1].test_accuracy > 0.98
