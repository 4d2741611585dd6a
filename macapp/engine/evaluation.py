"""How good a network is on pictures it was not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from macapp.engine import batches

if TYPE_CHECKING:
    from macapp.engine.datasets import Dataset
    from macapp.engine.devices import Device

TEST_BATCH_SIZE = 1000  # the article's


class Score(NamedTuple):
    """The outcome of one test pass."""

    loss: float
    """Mean negative log-likelihood."""
    accuracy: float
    """Share of correct answers, 0 to 1."""


def evaluate(network: nn.Module, dataset: Dataset, device: Device) -> Score:
    """Test the network on the dataset's test pictures.

    Log-probabilities are collected on the device and read once; the answers are then taken on
    the CPU, since argmax on MPS returned nonsense in several versions (pytorch#92311, #112186).
    """
    network.eval()
    with torch.inference_mode():
        parts, truths = [], []
        for images, labels in batches.in_order(dataset.test, dataset, device, TEST_BATCH_SIZE):
            parts.append(network(images))
            truths.append(labels)
        log_probabilities = device.read(torch.cat(parts)).double()
        labels = torch.cat(truths)
        loss = F.nll_loss(log_probabilities, labels)
        accuracy = (log_probabilities.argmax(1) == labels).double().mean()
    return Score(loss.item(), accuracy.item())
