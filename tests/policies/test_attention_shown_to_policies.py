"""What a policy is told of attention is the mean over the query group, whatever part of the rows it asks about."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from engine.raw import run_layer

from policies import Policy
from policies.scorer import Stateless

HEADS, WIDTH, TOKENS, NEAR, LAST = 2, 8, 30, 6, 5


@dataclass(frozen=True)
class Listener(Stateless):
    """A scorer that notes down what it is told about the prompt; its scores mean nothing."""

    heard: dict[str, torch.Tensor] = field(default_factory=dict, hash=False)

    def score(self, view):
        order = view.positions.long()

        def by_position(told):
            return torch.zeros_like(told).scatter(-1, order.expand(*told.shape[:-1], -1), told)[0]

        if view.phase == "prompt":
            near = view.per_row((NEAR,))
            self.heard["all"] = by_position(view.attention.received("all"))
            self.heard["last"] = by_position(view.attention.received(LAST))
            self.heard["near"] = by_position(view.attention.received_within(near))
        return view.positions.float()


@pytest.mark.parametrize("group", [1, 2, 4])
def test_every_statistic_is_a_mean_over_the_group(group):
    torch.manual_seed(group)
    query, keys = 2 * torch.randn(HEADS * group, TOKENS, WIDTH), torch.randn(HEADS, TOKENS, WIDTH)
    listener = Listener()
    run_layer(Policy("listener", listener), [(query, keys, keys)], budget=TOKENS - 1, prompt_chunks=1)
    distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    logits = query.view(HEADS, group, TOKENS, WIDTH) @ keys[:, None].transpose(-1, -2) * WIDTH**-0.5
    mean = logits.masked_fill(distance < 0, -torch.inf).softmax(-1).mean(1)
    expected = {"all": mean.sum(1), "last": mean[:, -LAST:].sum(1), "near": (mean * (distance < NEAR)).sum(1)}
    for what, told in listener.heard.items():
        torch.testing.assert_close(told, expected[what], rtol=1e-5, atol=1e-6, msg=what)
    assert set(listener.heard) == set(expected)
