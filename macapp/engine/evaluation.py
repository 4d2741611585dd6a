"""How good a network is on pictures it was not trained on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from macapp.engine import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from macapp.engine.datasets import Dataset
    from macapp.engine.devices import Device

TEST_BATCH_SIZE = 1000  # the article's
MESSAGE_SECONDS = 1.0


class Score(NamedTuple):
    """The outcome of one test pass."""

    loss: float
    """Mean negative log-likelihood."""
    accuracy: float
    """Share of correct answers, 0 to 1."""


def evaluate(
    network: nn.Module, dataset: Dataset, device: Device, batch_size: int = TEST_BATCH_SIZE
) -> Iterator[Score | None]:
    """Test the network on the dataset's test pictures; yield the score at the end.

    A long pass yields None about once a second, with the device's queue empty: the caller may
    then do something else, or close the generator.

    Log-probabilities are collected on the device and read once; the answers are then taken on
    the CPU, since argmax on MPS returned nonsense in several versions (pytorch#92311, #112186).
    """
    network.eval()
    yielded_at = time.monotonic()
    parts, truths = [], []
    for images, labels in batches.in_order(dataset.test, dataset, device, batch_size):
        # Not around the yield: the mode would hold for the caller, too.
        with torch.inference_mode():
            parts.append(network(images))
        truths.append(labels)
        if time.monotonic() - yielded_at > MESSAGE_SECONDS:
            device.synchronize()
            yield None
            yielded_at = time.monotonic()
    with torch.inference_mode():
        log_probabilities = device.read(torch.cat(parts)).double()
        truth = torch.cat(truths)
        loss = F.nll_loss(log_probabilities, truth)
        accuracy = (log_probabilities.argmax(1) == truth).double().mean()
    yield Score(loss.item(), accuracy.item())
