"""The two loops that ours is measured against: the article's, and the fastest bare one.

``python -m tests.benchmarks.loops article|bare EPOCHS`` prints the seconds of each epoch as JSON.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from macapp import resources
from macapp.engine import datasets, networks

if TYPE_CHECKING:
    from collections.abc import Iterator


def article(epochs: int) -> Iterator[float]:
    """Train as the article does; yield the seconds of each epoch."""
    from torchvision import transforms
    from torchvision.datasets import MNIST

    with tempfile.TemporaryDirectory() as root:
        raw = Path(root) / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for name in datasets.MNIST_DIGESTS:
            packed = (resources.folder() / "mnist" / name).read_bytes()
            (raw / name.removesuffix(".gz")).write_bytes(gzip.decompress(packed))
        scale = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
        )
        data = MNIST(root, train=True, download=False, transform=scale)
        loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
        model = networks.build("article", seed=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
        model.train()
        for _ in range(epochs):
            started = time.perf_counter()
            for step, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                loss = F.nll_loss(model(images), labels)
                loss.backward()
                optimizer.step()
                if step % 100 == 0:
                    loss.item()
            yield time.perf_counter() - started


def bare(epochs: int) -> Iterator[float]:
    """Train with nothing but the steps themselves; yield the seconds of each epoch.

    Pictures lie in memory, scaled; channels_last; fused SGD; one gather a batch, which the
    processor's cache still holds when the step begins; the loss is read once an epoch.
    """
    data = datasets.load("mnist", resources.folder())
    pictures = torch.from_numpy(data.train.images).float().div_(255).sub_(0.1307).div_(0.3081)
    truths = torch.from_numpy(data.train.labels)
    model = networks.build("article", seed=1).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5, fused=True)
    model.train()
    for _ in range(epochs):
        started = time.perf_counter()
        losses = []
        for chosen in torch.randperm(len(truths)).split(64):
            optimizer.zero_grad()
            output = model(pictures.index_select(0, chosen))
            loss = F.nll_loss(output, truths.index_select(0, chosen))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.stack(losses).mean().item()
        yield time.perf_counter() - started


if __name__ == "__main__":
    loop = {"article": article, "bare": bare}[sys.argv[1]]
    print(json.dumps(list(loop(int(sys.argv[2])))))
