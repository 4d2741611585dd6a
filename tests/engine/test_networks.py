from __future__ import annotations

import torch

from macapp.engine import networks


def test_the_articles_network_has_the_articles_parameters() -> None:
    network = networks.build("article", seed=1)
    assert sum(parameter.numel() for parameter in network.parameters()) == 21_840
    shapes = [tuple(parameter.shape) for parameter in network.parameters()]
    assert shapes == [
        (10, 1, 5, 5), (10,), (20, 10, 5, 5), (20,), (50, 320), (50,), (10, 50), (10,),
    ]  # fmt: skip


def test_it_returns_log_probabilities() -> None:
    output = networks.build("article", seed=1)(torch.rand(3, 1, 28, 28))
    torch.testing.assert_close(output.exp().sum(1), torch.ones(3))


def test_weights_come_from_the_seed() -> None:
    first, again, other = (networks.build("article", seed=seed) for seed in (1, 1, 2))
    for one, two, three in zip(
        first.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(one, two)
        assert not torch.equal(one, three)
