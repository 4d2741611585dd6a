"""A device "mps" on any machine: it computes on the CPU and accepts only what Metal accepts.

While `installed` is entered, ``tensor.to("mps")`` works and `macapp.engine.devices.Mps` runs as it
is. Tensors there are `MpsTensor`: every torch function that gets one passes through here, and is
refused if a real MPS would raise, or would compute wrong numbers or crash (the sources are in
`macapp.engine.devices`).
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from macapp.engine.devices import Mps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DEVICE = torch.device("mps")
WITHOUT_METAL = torch.device("cpu")
DOUBLE = (torch.float64, torch.complex128)
NO_DOUBLE = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead."
)
# What may take tensors of two devices: it copies, or says something about them.
BETWEEN_DEVICES: set[Any] = {
    torch.Tensor.copy_,
    torch.Tensor.data.__set__,  # type: ignore[attr-defined]
    torch.Tensor.grad.__set__,  # type: ignore[union-attr]
    torch._has_compatible_shallow_copy_type,
}
# What takes a device and makes no tensor on it.
ABOUT_DEVICES: set[Any] = {torch.device, torch._C._nn._parse_to}


class MisuseError(Exception):
    """MPS was asked what it must never be asked."""


class MpsTensor(torch.Tensor):
    """A tensor that says it lies on the device "mps"."""

    owner = 0
    """The one thread that may touch any."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Check the call, then compute it on the CPU."""
        del types
        if func == torch.Tensor.device.__get__:
            return DEVICE
        kwargs = dict(kwargs or {})
        check(func, args, kwargs)
        goes_home = func is torch.Tensor.cpu or (
            func is torch.Tensor.to and WITHOUT_METAL in _devices(args, kwargs)
        )
        into_plain = func is torch.Tensor.copy_ and type(args[0]) is torch.Tensor
        args, kwargs = _on_the_cpu(args), {name: _on_the_cpu(a) for name, a in kwargs.items()}
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
            if goes_home:
                return result.as_subclass(torch.Tensor)
            return result if into_plain else _wrapped(result)


class _Entrance(TorchFunctionMode):
    """Lets tensors be made on, and moved to, a device "mps"."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        is_ours = DEVICE in _devices(args, kwargs) and func not in ABOUT_DEVICES
        if not is_ours or any(issubclass(kind, MpsTensor) for kind in types):
            return func(*args, **kwargs)
        check(func, args, kwargs)
        plain = {name: _on_the_cpu(argument) for name, argument in kwargs.items()}
        result = func(*_on_the_cpu(args), **plain)
        if args and result is args[0]:  # a move copies
            result = result.clone()
        return _wrapped(result)


def check(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if MPS must not be asked this."""
    name = getattr(func, "__name__", str(func))
    if threading.get_ident() != MpsTensor.owner:
        raise MisuseError(f"{name} from a second thread")
    if func is torch.Tensor.numpy:
        raise TypeError("can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() first")
    flags = [*args[1:], kwargs.get("non_blocking"), kwargs.get("pin_memory")]
    asks_for_copy = func in (torch.Tensor.to, torch.Tensor.copy_, torch.Tensor.cpu)
    if kwargs.get("non_blocking") or (asks_for_copy and any(flag is True for flag in flags)):
        raise MisuseError(f"{name} with non_blocking")
    if func is torch.Tensor.pin_memory or kwargs.get("pin_memory"):
        raise MisuseError(f"{name} with pinned memory")
    everything = list(_flat([*args, *kwargs.values()]))
    if any(item in (torch.channels_last, torch.channels_last_3d) for item in everything
           if isinstance(item, torch.memory_format)):  # fmt: skip
        raise MisuseError(f"{name} with channels_last")
    tensors = [item for item in everything if isinstance(item, torch.Tensor)]
    asked = [item for item in everything if isinstance(item, torch.dtype)]
    with torch._C.DisableTorchFunction():
        asked += [tensor.dtype for tensor in tensors]
        plain = [t for t in tensors if not isinstance(t, MpsTensor) and t.dim() > 0]
        is_mixed = len(plain) not in (0, len(tensors))
    if func is torch.Tensor.double or any(dtype in DOUBLE for dtype in asked):
        raise TypeError(NO_DOUBLE)
    # A parameter is one by its type only after the move; gradients are read from it wrapped.
    if is_mixed and func not in BETWEEN_DEVICES:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"mps:0 and cpu! (in {name})"
        )


def _flat(items: Sequence[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def _devices(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.device]:
    """Return the devices named; a name stands for one in a call of ``to`` and after "device"."""
    named = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.device)]
    names = [item for item in (*args, kwargs.get("device")) if isinstance(item, str)]
    return named + [torch.device(name) for name in names if name in ("mps", "cpu")]


def _on_the_cpu(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return type(argument)(_on_the_cpu(item) for item in argument)
    is_device = isinstance(argument, (torch.device, str))
    return WITHOUT_METAL if is_device and str(argument) == "mps" else argument


def _wrapped(result: Any) -> Any:
    if type(result) is torch.Tensor:
        return result.as_subclass(MpsTensor)
    if type(result) in (list, tuple):
        return type(result)(_wrapped(item) for item in result)
    return result


class FakeMemory:
    """What ``torch.mps`` says of its memory."""

    def __init__(self) -> None:
        self.caches_freed = 0

    def free(self) -> None:
        """Be ``torch.mps.empty_cache``."""
        self.answer(None)
        self.caches_freed += 1

    @staticmethod
    def answer(value: Any) -> Any:
        """Return a value, to the right thread."""
        if threading.get_ident() != MpsTensor.owner:
            raise MisuseError("torch.mps from a second thread")
        return value


@contextmanager
def installed() -> Iterator[FakeMemory]:
    """Let this thread, and no other, use a device "mps"."""
    memory = FakeMemory()
    stand_ins = {
        "current_allocated_memory": lambda: memory.answer(2**20),
        "driver_allocated_memory": lambda: memory.answer(2**22),
        "recommended_max_memory": lambda: memory.answer(2**34),
        "empty_cache": memory.free,
        "synchronize": lambda: memory.answer(None),
    }
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch.object(torch.mps, name, stand_in, create=True))
        # A parameter that is moved becomes a new one: only so can it be of another type.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        MpsTensor.owner = threading.get_ident()
        stack.enter_context(_Entrance())
        yield memory


class FakeMps(Mps):
    """The real class, on a fake device; counts what is read, looks at every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def place(self, network: nn.Module) -> nn.Module:
        placed = super().place(network)
        assert all(isinstance(parameter, MpsTensor) for parameter in placed.parameters())
        placed.register_forward_pre_hook(self._check_batch)
        return placed

    @staticmethod
    def _check_batch(_network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        (images,) = inputs
        assert isinstance(images, MpsTensor)
        assert images.is_contiguous()
        assert images.storage_offset() == 0
        assert images.dtype == torch.float32

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        self.reads += 1
        return super().read(tensor)
