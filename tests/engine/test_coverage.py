from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp.engine import coverage, inspection
from macapp.engine.coverage import OperatorTable, read_yaml
from macapp.engine.devices import Cpu
from macapp.protocol import TrainingConfig, fields
from tests.engine.fake_mps import FakeMps
from tests.operator_tables import read_names

TABLES = Path(__file__).parent / "operator_tables"
NETWORKS = next(info.choices for info in fields() if info.name == "network")
OPTIMIZERS = next(info.choices for info in fields() if info.name == "optimizer")

SAMPLE = """\
# a comment
- func: relu(Tensor self) -> Tensor
  device_check: NoCheck
  variants: function, method
  dispatch:
    CPU, CUDA: relu
    MPS: relu_mps
    # MTIA: not yet
  autogen: relu.out

- func: im2col(Tensor self, int[2] kernel_size) -> Tensor
  dispatch:
    CPU: im2col_cpu
    CUDA: im2col_cuda
- func: add.Tensor(Tensor self, Tensor other) -> Tensor
  structured_delegate: add.out
- func: add.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, CUDA, MPS: add_out
- func: linear(Tensor input) -> Tensor
- func: convolution(Tensor input) -> Tensor
  dispatch:
    CompositeExplicitAutograd: convolution
- func: native_group_norm_backward(Tensor x) -> Tensor
  dispatch:
    CPU, CUDA: native_group_norm_backward
"""


def test_each_rule_of_the_table() -> None:
    table = OperatorTable(read_yaml(SAMPLE), (2, 8))
    for name in ("relu", "relu.out", "add.Tensor", "add.out", "linear", "convolution"):
        assert table.runs_on_mps(name), name
    assert table.missing_on_mps(["relu", "im2col", "torchvision::nms"]) == (
        "im2col",
        "torchvision::nms",
    )
    # Written in Python up to 2.12, a kernel of its own later.
    assert table.runs_on_mps("native_group_norm_backward")
    assert not OperatorTable(read_yaml(SAMPLE), (2, 13)).runs_on_mps("native_group_norm_backward")


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    read_yaml(text)


@given(st.integers(0, len(SAMPLE)), st.text(max_size=5))
def test_a_torn_table_can_be_read(cut: int, junk: str) -> None:
    read_yaml(SAMPLE[:cut] + junk)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_runs_on_the_metal_of_the_installed_torch(
    network: str, optimizer: str
) -> None:
    config = TrainingConfig(network=network, optimizer=optimizer)  # type: ignore[arg-type]
    table = coverage.installed_table()
    assert table is not None
    names = coverage.trace(config)
    assert {"convolution", "convolution_backward", "nll_loss_forward"} <= names
    assert table.missing_on_mps(names) == ()


@pytest.mark.parametrize("version", ["2.2.2", "2.5.1", "2.8.0"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_runs_on_the_metal_of_older_torches(
    network: str, optimizer: str, version: str
) -> None:
    config = TrainingConfig(network=network, optimizer=optimizer)  # type: ignore[arg-type]
    runs = read_names(TABLES / f"{version}.txt")
    assert len(runs) > 2000
    lacking = [name for name in coverage.trace(config) if not runs.get(name, False)]
    assert lacking == []


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        ("2.2.2", {"im2col", "col2im", "native_dropout", "upsample_bicubic2d", "channel_shuffle"}),
        ("2.5.1", {"native_dropout", "channel_shuffle", "fractional_max_pool2d"}),
        ("2.8.0", {"native_dropout", "channel_shuffle", "fractional_max_pool2d"}),
    ],
)
def test_known_gaps_are_in_the_tables(version: str, missing: set[str]) -> None:
    runs = read_names(TABLES / f"{version}.txt")
    assert {name for name in missing if runs[name]} == set()
    assert all(runs[name] for name in ("relu", "convolution", "native_group_norm_backward"))


def test_the_trace_leaves_the_random_numbers_alone() -> None:
    import torch

    torch.manual_seed(3)
    before = torch.get_rng_state()
    coverage.trace(TrainingConfig())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("metal")
def test_memory_grows_with_the_batch_and_what_fits_is_told() -> None:
    small, large = (inspection.memory_needs(TrainingConfig()).of(size) for size in (64, 128))
    assert 1.5 < large / small < 2.5

    class Small(FakeMps):
        def free_bytes(self) -> int:
            return small

    found = inspection.inspect(TrainingConfig(batch_size=512), Small())
    assert found.needed_bytes > found.free_bytes
    assert found.fitting_batch_size == 64


def test_adam_needs_more_than_sgd() -> None:
    plain, adam = (
        inspection.memory_needs(TrainingConfig(optimizer=optimizer)).fixed
        for optimizer in ("sgd", "adam")
    )
    assert adam - plain == pytest.approx(21_840 * 4, rel=0.01)  # two averages, not one


def test_on_the_cpu_nothing_falls_back() -> None:
    found = inspection.inspect(TrainingConfig(), Cpu())
    assert (found.on_cpu, found.is_complete) == ((), True)
