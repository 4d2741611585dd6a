"""The networks, by name. Each returns log-probabilities, shape (pictures, classes)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ArticleCnn(nn.Module):
    """The article's network for 28x28 grey pictures: 21,840 parameters."""

    def __init__(self) -> None:
        """Draw the weights from torch's default generator."""
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.linear1 = nn.Linear(320, 50)
        self.linear2 = nn.Linear(50, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, 1, 28, 28) to log-probabilities (N, 10)."""
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.linear1(x.flatten(1)))
        return F.log_softmax(self.linear2(x), dim=1)


def build(name: str, seed: int) -> nn.Module:
    """Return the network called ``name`` on the CPU, its weights drawn from ``seed``.

    Weights are always drawn on the CPU: random numbers of Metal and CUDA differ from its own.

    Raises:
        KeyError: there is no such network.
    """
    torch.manual_seed(seed)
    return {"article": ArticleCnn}[name]()
