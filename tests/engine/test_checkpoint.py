from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from macapp.engine import checkpoint, networks
from macapp.messages import UserError

if TYPE_CHECKING:
    from pathlib import Path


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
