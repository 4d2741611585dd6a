"""Operators of one "Article" training step: the article's loop and ours. Exact, no timing.

``python -m tests.benchmarks.operators`` prints how many operators that are no views (which
move no data and start no kernel) each loop calls at a step, as one JSON object.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from macapp import resources
from macapp.engine import datasets, devices, diagnosis, networks, training
from macapp.protocol import StepsDone, TrainingConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


class OperatorCounter(TorchDispatchMode):
    """Counts the operators that reach the dispatcher, views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not func.is_view and func.namespace == "aten":
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def article_step() -> Counter[str]:
    """Count a warm step of the article's loop; its images come one by one from a Dataset."""
    model = networks.build("article", seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5, foreach=False)
    images, labels = torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))

    def step() -> None:
        # .to(device), as the article writes it: on a GPU two copies a step.
        optimizer.zero_grad()
        loss = F.nll_loss(model(images.clone()), labels.clone())
        loss.backward()
        optimizer.step()

    step()
    counter = OperatorCounter()
    with counter:
        step()
    return counter.counts


class AsOnMetal(devices.Mps):
    """What we do on Metal, on the CPU."""

    def __init__(self) -> None:
        super().__init__("cpu")

    def free_bytes(self) -> int:
        return 2**34

    def memory(self) -> None:
        return None


def our_steps(steps: int, device: devices.Device) -> float:
    """Return the operators a step of ours, everything between two messages counted in."""
    config = TrainingConfig(epochs=1, device="cpu")
    network, dataset, _ = training.assemble(config, resources.folder(), diagnosis.DeviceSurvey())
    small = datasets.Dataset(
        train=datasets.Split(
            dataset.train.images[: 64 * steps], dataset.train.labels[: 64 * steps]
        ),
        test=datasets.Split(dataset.test.images[:64], dataset.test.labels[:64]),
        classes=dataset.classes,
        mean=dataset.mean,
        std=dataset.std,
    )
    events = training.train(config, network, small, device)
    counted = 0
    counter = OperatorCounter()
    with counter:
        next(events)  # JobStarted: the data has been put on the device
        counter.counts.clear()
        for event in events:
            if isinstance(event, StepsDone):
                counted += len(event.losses)
                if counted == steps:
                    break
    return sum(counter.counts.values()) / counted


def main() -> None:
    """Count, and print."""
    article = article_step()
    ours = {
        "c": round(our_steps(200, devices.Cpu()), 2),
        "c_as_on_metal": round(our_steps(200, AsOnMetal()), 2),
    }
    print(json.dumps({"a": sum(article.values()), **ours}))


if __name__ == "__main__":
    main()
