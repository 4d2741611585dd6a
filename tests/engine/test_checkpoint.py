from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from macapp.engine import checkpoint, networks, training
from macapp.engine.devices import Cpu
from macapp.messages import UserError
from macapp.protocol import CheckpointSaved, EpochDone, RunNotice, TrainingConfig

if TYPE_CHECKING:
    from pathlib import Path

    from macapp.engine.datasets import Dataset

# The network's weights --------------------------------------------------------------------------


def test_weights_are_read_back(tmp_path: Path) -> None:
    network = networks.build("article", 1).to(memory_format=torch.channels_last)
    path = tmp_path / "我的 network.safetensors"
    checkpoint.save_weights(network, path)
    loaded = load_file(path)
    assert loaded.keys() == network.state_dict().keys()
    for name, tensor in network.state_dict().items():
        assert torch.equal(loaded[name], tensor)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "network.safetensors"
    path.write_bytes(b"old")

    def fsync(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UserError, match="could not be saved"):
        checkpoint.save_weights(networks.build("article", 1), path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_without_a_network_there_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no trained network"):
        checkpoint.save_weights(None, tmp_path / "x")


# The state of a run -------------------------------------------------------------------------------


def train(config: TrainingConfig, dataset: Dataset, **how: Any) -> tuple[nn.Module, list[Any]]:
    """Train a network that has more to remember than its weights: random numbers, averages."""
    network = nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(256, 10),
        nn.LogSoftmax(1),
    )
    return network, list(training.train(config, network, dataset, Cpu(), **how))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_run_goes_on_as_if_it_had_not_ended(
    digits: Dataset, tmp_path: Path, optimizer: Any
) -> None:
    config = TrainingConfig(epochs=3, optimizer=optimizer, learning_rate=0.003)
    path = tmp_path / "state.pt"
    torch.manual_seed(1)
    whole, events = train(config, digits, checkpoint_path=path)
    saved = [event for event in events if isinstance(event, CheckpointSaved)]
    assert [event.epoch for event in saved] == [1, 2]

    torch.manual_seed(2)
    rest, later = train(config, digits, start=checkpoint.load(path))
    last, last_again = ([e for e in those if isinstance(e, EpochDone)] for those in (events, later))
    assert [event.epoch for event in last_again] == [3]
    assert last[-1].train_loss == last_again[-1].train_loss
    assert last[-1].test_loss == last_again[-1].test_loss
    ends = whole.state_dict(), rest.state_dict()
    assert ends[0].keys() == ends[1].keys()
    for name in ends[0]:
        assert torch.equal(ends[0][name], ends[1][name]), name


@pytest.fixture
def state_file(digits: Dataset, tmp_path: Path) -> Path:
    path = tmp_path / "state.pt"
    train(TrainingConfig(epochs=2, optimizer="adam"), digits, checkpoint_path=path)
    return path


def test_a_damaged_state_is_refused(state_file: Path) -> None:
    whole = state_file.read_bytes()
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], whole[:-1], b"PK" + whole):
        state_file.write_bytes(damaged)
        with pytest.raises(UserError, match="can no longer be read"):
            checkpoint.load(state_file)
    state_file.unlink()
    with pytest.raises(UserError, match="can no longer be read"):
        checkpoint.load(state_file)


@pytest.mark.parametrize("content", [{"format": 99}, {"format": 1, "epoch": 3}, {}, [1], None])
def test_another_programs_file_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(UserError, match="can no longer be read"):
        checkpoint.load(tmp_path / "x.pt")


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "harm"),)

    torch.save({"format": checkpoint.FORMAT, "network": Harmful()}, tmp_path / "x.pt")
    with pytest.raises(UserError, match="can no longer be read"):
        checkpoint.load(tmp_path / "x.pt")
    assert not (tmp_path / "harm").exists()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.pt"
    path.write_bytes(content)
    with pytest.raises(UserError, match="can no longer be read"):
        checkpoint.load(path)


@pytest.mark.parametrize("trouble", ["full", "gone"])
def test_a_state_that_cannot_be_saved_is_said_and_training_goes_on(
    digits: Dataset, tmp_path: Path, trouble: str
) -> None:
    path = tmp_path / "folder" / "state.pt"
    if trouble == "full":
        path.parent.mkdir()
        path.write_bytes(b"the one before")
        path.with_name("state.pt.part").symlink_to("/dev/full")
    _, events = train(TrainingConfig(epochs=3), digits, checkpoint_path=path)
    notices = [event for event in events if isinstance(event, RunNotice)]
    assert notices[0].kind == "checkpoint"
    assert "after epoch 1 could not be saved" in str(notices[0].message)
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [1, 2, 3]
    assert not path.with_name("state.pt.part").exists()
