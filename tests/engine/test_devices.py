from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from macapp.engine import networks
from macapp.engine.devices import Cpu, Device, Mps
from tests.engine.fake_mps import FakeMps

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("metal")


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


@pytest.mark.parametrize("kind", [Cpu, FakeMps])
def test_what_is_put_can_be_read_back(kind: type[Device]) -> None:
    device = kind()
    values = torch.arange(24.0).reshape(1, 2, 3, 4)
    assert torch.equal(device.read(device.put(values)), values)
    device.synchronize()
    assert device.free_bytes() > 0
