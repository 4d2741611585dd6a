from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from macapp import machine
from macapp.engine import devices, networks
from macapp.engine.devices import Cpu, Device, Mps
from macapp.messages import UserError
from macapp.protocol import DeviceStatus
from tests.engine.fake_mps import FakeMps

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_survey_knows_every_kind() -> None:
    found = {status.kind: status for status in devices.survey()}
    assert set(found) == {"mps", "cuda", "cpu"}
    assert found["cpu"].ready
    for status in found.values():
        assert str(status.reason).endswith(".")


def test_automatic_takes_the_first_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Cpu.status()
    monkeypatch.setattr(devices, "DEVICES", {"mps": _Unready, "cpu": Cpu})
    assert devices.choose("auto").kind == "cpu"
    monkeypatch.setattr(_Unready, "status", staticmethod(lambda: ready))
    assert isinstance(devices.choose("auto"), _Unready)


class _Unready(FakeMps):
    @staticmethod
    def status() -> DeviceStatus:
        return DeviceStatus("mps", False, Mps.status().reason)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="has Metal")
def test_a_device_that_is_not_there_is_explained() -> None:
    with pytest.raises(UserError) as caught:
        devices.choose("mps")
    assert "Metal" in str(caught.value.failure.what)
    assert "Choose another device" in str(caught.value.failure.remedy)


@pytest.mark.parametrize(
    "text",
    [
        "MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, max "
        "allowed: 1.70 GB). Tried to allocate 0 bytes on private pool. Use "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
        "(may cause system failure).",
        "The MPS backend is supported on MacOS 14.0+.Current OS version can be queried using "
        "`sw_vers`",
    ],
)
def test_available_but_failing_is_not_ready(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A virtual machine says that MPS is available; the first allocation fails."""

    def ones(*_args: object, **_kwargs: object) -> torch.Tensor:
        raise RuntimeError(text)

    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", ones)
    status = Mps.status()
    assert not status.ready
    assert "a first small task failed" in str(status.reason)
    assert "PYTORCH_" not in str(status.reason)  # for the details only
    assert text in status.details


def test_wrong_numbers_are_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", lambda *_args, **_kwargs: torch.zeros(2))
    assert "wrong numbers" in str(Mps.status().reason)


def test_built_but_unavailable_names_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(machine, "macos_version", lambda: "13.6")
    reason = str(Mps.status().reason)
    assert "macOS 13.6" in reason
    assert torch.__version__.split("+")[0] in reason


def test_mps_keeps_everything_contiguous() -> None:
    device = FakeMps()
    picture = torch.rand(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert device.put(picture).is_contiguous()
    network = networks.build("article", seed=1).to(memory_format=torch.channels_last)
    for parameter in device.place(network).parameters():
        assert parameter.is_contiguous()


def test_mps_refuses_double_precision() -> None:
    device = FakeMps()
    with pytest.raises(TypeError, match="float64"):
        device.put(torch.zeros(1, dtype=torch.float64))
    with pytest.raises(TypeError, match="float64"):
        device.place(nn.Linear(1, 1).double())


def test_mps_refuses_a_second_thread() -> None:
    device = FakeMps()
    errors: list[Exception] = []
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: device.put(torch.zeros(1)),
        "read": lambda: device.read(torch.zeros(1)),
        "synchronize": device.synchronize,
        "place": lambda: device.place(nn.Linear(1, 1)),
    }

    def use(call: str) -> None:
        try:
            calls[call]()
        except RuntimeError as error:
            errors.append(error)

    for call in ("put", "read", "synchronize", "place"):
        thread = threading.Thread(target=use, args=(call,))
        thread.start()
        thread.join()
    assert [str(error) for error in errors] == ["MPS was used from a second thread"] * 4


def test_copies_never_ask_to_be_asynchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    plain = torch.Tensor.to

    def to(self: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        asked.append(kwargs)
        return plain(self, *args, **kwargs)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self: pytest.fail("pinned memory was asked for")
    )
    FakeMps().put(torch.zeros(2))
    assert asked
    assert not any(kwargs.get("non_blocking") for kwargs in asked)


def test_an_old_torch_has_no_recommended_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.mps, "recommended_max_memory", raising=False)
    assert Mps.free_bytes(FakeMps()) > 0


@pytest.mark.parametrize(
    ("version", "fused"), [("2.2.2", False), ("2.4.1", False), ("2.5.0", True)]
)
def test_fused_steps_need_torch_2_5_on_mps(
    monkeypatch: pytest.MonkeyPatch, version: str, fused: bool
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert FakeMps().may_fuse_optimizer() is fused


@pytest.mark.parametrize("device", [Cpu(), FakeMps()], ids=["cpu", "mps"])
def test_what_is_put_can_be_read_back(device: Device) -> None:
    values = torch.arange(24.0).reshape(1, 2, 3, 4)
    assert torch.equal(device.read(device.put(values)), values)
    device.synchronize()
    assert device.free_bytes() > 0
