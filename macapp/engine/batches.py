"""Pictures to batches: whole on the device when they fit, from the CPU's memory otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from macapp.engine.failures import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from macapp.engine.datasets import Dataset, Split
    from macapp.engine.devices import Device


GATHERED_PICTURES = 2048
"""About so many are gathered at a time: few operators, and a processor's cache still holds them."""


class ResidentBatches:
    """All pictures on the device, scaled once; one gather shuffles many batches.

    A batch is then a view: no operator and no transfer at a step. Where a batch must not be a
    view, it has a gather of its own.
    """

    def __init__(self, split: Split, dataset: Dataset, device: Device) -> None:
        """Copy the pictures to the device and scale them there."""
        self._device = device
        self._images = _scaled(device.put(torch.from_numpy(split.images)), dataset)
        self._labels = device.put(torch.from_numpy(split.labels))

    @staticmethod
    def needed_bytes(split: Split) -> int:
        """Return what this takes on the device: the pictures as float32, the labels as int64."""
        return 4 * split.images.size + 8 * split.labels.size

    def epoch(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, labels) in ``order``, an int64 permutation on the CPU."""
        gathered = batch_size
        if self._device.batches_may_be_views:
            gathered *= max(1, GATHERED_PICTURES // batch_size)
        for chosen in torch.split(self._device.put(order), gathered):
            images = self._images.index_select(0, chosen)
            labels = self._labels.index_select(0, chosen)
            yield from zip(images.split(batch_size), labels.split(batch_size), strict=True)


class StreamedBatches:
    """Pictures stay as bytes in the CPU's memory; each batch is copied over and scaled."""

    def __init__(self, split: Split, dataset: Dataset, device: Device) -> None:
        """Keep references; nothing is copied yet."""
        self._device = device
        self._dataset = dataset
        self._images = torch.from_numpy(split.images)
        self._labels = torch.from_numpy(split.labels)

    def epoch(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, labels) in ``order``, an int64 permutation on the CPU."""
        for chosen in torch.split(order, batch_size):
            images = self._device.put(self._images.index_select(0, chosen))
            labels = self._device.put(self._labels.index_select(0, chosen))
            yield _scaled(images, self._dataset), labels


def make(split: Split, dataset: Dataset, device: Device) -> ResidentBatches | StreamedBatches:
    """Return the faster kind of batches that fits on the device.

    Half of its free memory is left to the network, its gradients and everyone else.
    """
    if ResidentBatches.needed_bytes(split) <= device.free_bytes() // 2:
        try:
            return ResidentBatches(split, dataset, device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        device.free_cache()
    return StreamedBatches(split, dataset, device)


def in_order(
    split: Split, dataset: Dataset, device: Device, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (images on the device, labels on the CPU) from first to last, for a test pass."""
    images = torch.split(torch.from_numpy(split.images), batch_size)
    labels = torch.split(torch.from_numpy(split.labels), batch_size)
    for batch, truth in zip(images, labels, strict=True):
        yield _scaled(device.put(batch), dataset), truth


def _scaled(images: Tensor, dataset: Dataset) -> Tensor:
    """Return bytes as float32: (p / 255 - mean) / std, as torchvision's transforms do."""
    return images.float().div_(255).sub_(dataset.mean).div_(dataset.std)
