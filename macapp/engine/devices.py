"""What computes: one small class a device, the same few verbs on each.

What a device must never be asked is refused here, so that a test on any machine sees the fault
that would corrupt numbers on a Mac only (the sources are named beside each rule).
"""

from __future__ import annotations

import ctypes
import platform
import threading
from typing import ClassVar

import psutil
import torch
from torch import Tensor, nn

from macapp.protocol import DeviceKind, DeviceMemory


class Device:
    """A place to train. The base class is what all devices share."""

    kind: ClassVar[DeviceKind]
    memory_format: ClassVar[torch.memory_format] = torch.contiguous_format
    """The layout of pictures and convolution weights that is fastest here and right."""
    batches_may_be_views: ClassVar[bool] = True
    """Whether a batch may be part of a larger tensor: cheaper, where offsets are honoured."""

    def __init__(self, torch_device: str | None = None) -> None:
        """Use ``torch_device``, by default the device of this kind."""
        self.torch_device = torch.device(torch_device or self.kind)

    def place(self, network: nn.Module) -> nn.Module:
        """Move the network here, in this device's memory format."""
        return network.to(self.torch_device).to(memory_format=self.memory_format)

    def put(self, tensor: Tensor) -> Tensor:
        """Copy a tensor here; 4-dimensional ones get this device's memory format."""
        tensor = tensor.to(self.torch_device)
        if tensor.dim() == 4:
            return tensor.contiguous(memory_format=self.memory_format)
        return tensor.contiguous()

    def read(self, tensor: Tensor) -> Tensor:
        """Copy a whole tensor to the CPU; returns when all work queued before it is done."""
        return tensor.detach().contiguous().cpu()

    def synchronize(self) -> None:
        """Wait until all queued work is done. Call it before reading a clock."""

    def free_bytes(self) -> int:
        """Return how many bytes of new tensors this device can take, as far as is known."""
        return int(psutil.virtual_memory().available)

    def memory(self) -> DeviceMemory | None:
        """Return what the engine holds on a GPU; None on the CPU, or when it does not say."""
        return None

    def free_cache(self) -> None:
        """Give freed memory back to the system, so that a smaller batch finds it whole."""

    def may_fuse_optimizer(self) -> bool:
        """Return whether fused optimizer steps are worth trying here."""
        return True


class Cpu(Device):
    """The processor, all of its cores."""

    kind = "cpu"
    # oneDNN's own order: the "Article" epoch took 2.1 s with it and 3.5 s without it on 2 x86
    # cores. Where torch has no oneDNN the plain order is the faster one (1.20 s against 1.43 s
    # for 200 steps with oneDNN switched off).
    memory_format = (
        torch.channels_last if torch.backends.mkldnn.is_available() else torch.contiguous_format
    )

    def __init__(self, torch_device: str | None = None) -> None:
        """Keep freed memory in the process, where the system's allocator can be told so."""
        super().__init__(torch_device)
        _keep_freed_memory()


class Mps(Device):
    """Metal, through torch's MPS backend.

    Plain contiguous float32 only: channels_last gave wrong gradients and aborts
    (pytorch#175189, #175190), asynchronous copies wrong numbers (#139550, #189690). Operators
    have read a tensor from the start of its storage and not from its offset, one of them where
    it was laid out as channels_last, which pictures of one channel always are (#133520, #174345).
    """

    kind = "mps"
    batches_may_be_views = False

    def __init__(self, torch_device: str | None = None) -> None:
        """Remember the thread: a second one on MPS crashes the process (pytorch#197805)."""
        super().__init__(torch_device)
        self._owner = threading.get_ident()
        self._marker = torch.zeros(1, device=self.torch_device)

    def place(self, network: nn.Module) -> nn.Module:
        """Move the network here; every parameter must be contiguous (pytorch#118115, #192212)."""
        self._check_thread()
        for tensor in (*network.parameters(), *network.buffers()):
            self._check_dtype(tensor)
        placed = super().place(network)
        if not all(parameter.is_contiguous() for parameter in placed.parameters()):
            raise ValueError("MPS needs contiguous parameters")
        return placed

    def put(self, tensor: Tensor) -> Tensor:
        """Copy a tensor here, blocking; float64 is refused, since Metal has none."""
        self._check_thread()
        self._check_dtype(tensor)
        return super().put(tensor)

    def read(self, tensor: Tensor) -> Tensor:
        """Copy a whole tensor to the CPU."""
        self._check_thread()
        return super().read(tensor)

    def synchronize(self) -> None:
        """Wait by reading one number.

        Not torch.mps.synchronize(): up to torch 2.12 it holds the GIL, and commands from the
        window could not be read meanwhile.
        """
        self._check_thread()
        self._marker.add_(1).item()

    def free_bytes(self) -> int:
        """Return the smaller of what Metal recommends and what the system has available.

        torch.mps.recommended_max_memory is missing up to torch 2.4.
        """
        available = super().free_bytes()
        recommended = getattr(torch.mps, "recommended_max_memory", None)
        if recommended is None:
            return available
        return int(min(available, recommended() - torch.mps.driver_allocated_memory()))

    def memory(self) -> DeviceMemory | None:
        """Return the bytes in tensors, and those taken from Metal; neither waits for the GPU."""
        self._check_thread()
        return DeviceMemory(
            int(torch.mps.current_allocated_memory()), int(torch.mps.driver_allocated_memory())
        )

    def free_cache(self) -> None:
        """Empty the allocator's pools; the compiled graphs stay (pytorch#181485)."""
        self._check_thread()
        torch.mps.empty_cache()

    def may_fuse_optimizer(self) -> bool:
        """Fused steps came to MPS with torch 2.5."""
        return _torch_version() >= (2, 5)

    def _check_thread(self) -> None:
        if threading.get_ident() != self._owner:
            raise RuntimeError("MPS was used from a second thread")

    @staticmethod
    def _check_dtype(tensor: Tensor) -> None:
        if tensor.dtype in (torch.float64, torch.complex128):
            raise TypeError(f"MPS has no {tensor.dtype}")


class Cuda(Device):
    """An NVIDIA GPU."""

    kind = "cuda"

    def __init__(self, torch_device: str | None = None) -> None:
        """Compute in float32: convolutions in TF32, torch's default, are off by 0.1 %."""
        super().__init__(torch_device)
        torch.backends.cudnn.allow_tf32 = False

    def synchronize(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self.torch_device)

    def free_bytes(self) -> int:
        """Return the free memory of the GPU."""
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    def memory(self) -> DeviceMemory | None:
        """Return the bytes in tensors, and those taken from the driver."""
        return DeviceMemory(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())

    def free_cache(self) -> None:
        """Give cached blocks back to the driver."""
        torch.cuda.empty_cache()


DEVICES: dict[DeviceKind, type[Cpu | Mps | Cuda]] = {"mps": Mps, "cuda": Cuda, "cpu": Cpu}
"""In the order in which Automatic prefers them."""


def _keep_freed_memory() -> None:
    """Tell glibc not to give the buffers of each step back to Linux, only to fault them in again.

    50 to 170 page faults a step became none, and an "Article" epoch 3 to 10 % shorter.
    Parameters: malloc.h, M_TRIM_THRESHOLD -1 and M_MMAP_THRESHOLD -3, both in bytes.
    """
    if platform.system() == "Linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 256 * 2**20)
        libc.mallopt(-3, 32 * 2**20)  # the most that glibc allows


def _torch_version() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)
