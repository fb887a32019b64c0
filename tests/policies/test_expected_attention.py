"""Expected Attention: a worked example, and chunks. On a model: `tests/engine/test_model_openings.py`."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
import torch
from views import Given, view

from policies import PolicyError, build
from policies.expected_attention import ExpectedAttention
from policies.view import Rotation

QUARTERS = Rotation(torch.tensor([[1.0], [0.0], [-1.0], [0.0]] * 4), torch.tensor([[0.0], [1.0], [0.0], [-1.0]] * 4))


def test_worked_example():
    """policies.md 3.23: every query is (1, 0) before rotation; the next position, 3, turns it to (0, -1)."""
    shown = view(keys=[[0.0, -sqrt(2) * log(3)], [5.0, 0.0]], values=[[1.0, 0.0], [4.0, 0.0]], length=3)
    turned = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])  # (1, 0) at positions 0, 1 and 2
    shown = replace(shown, attention=Given(asked=turned.view(1, 1, 3, 2), chunk=3), rotation=QUARTERS, state={})
    scorer = ExpectedAttention(future=1, sinks=0)
    state = scorer.update(shown)
    assert state["mean"].tolist() == [[[1.0, 0.0]]]
    assert state["scatter"].abs().max() == 0
    found = scorer.score(replace(shown, state=state))
    assert found.flatten().tolist() == pytest.approx([0.75 * 1, 0.25 * 4])
    plain = ExpectedAttention(future=1, sinks=0, value_norm=False).score(replace(shown, state=state))
    assert plain.flatten().tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("sizes", [[9], [4, 5], [4, 1, 1, 3], [2, 7]])
def test_chunks_add_up_to_the_statistics_of_the_whole(sizes):
    """Whatever the chunks are, mean and scatter are those of all queries after the sinks, without their rotation."""
    queries = torch.randn(1, 2, 9, 4, generator=torch.Generator().manual_seed(3))
    angles = torch.arange(16)[:, None] * torch.tensor([1.0, 0.1])
    table = Rotation(angles.cos(), angles.sin())
    rotated = table.taken_off(queries, -torch.ones(1, 2, 9))
    cos, sin = table.cos[:9], table.sin[:9]
    first, second = queries.chunk(2, -1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    scorer, state, start = ExpectedAttention(sinks=3), {}, 0
    for size in sizes:
        stop = start + size
        padded = torch.cat([torch.full((1, 2, 2, 4), 9.0), rotated[:, :, start:stop]], 2)  # two places of padding
        shown = view(keys=[[0.0, 0.0]] * stop, length=stop)
        shown = replace(shown, attention=Given(asked=padded, chunk=size), rotation=table, state=state)
        state, start = dict(scorer.update(shown)), stop
    counted = queries[0, :, 3:].numpy()
    mean = counted.mean(1)
    centred = counted - mean[:, None]
    assert state["count"].item() == 6
    np.testing.assert_allclose(state["mean"][0], mean, atol=1e-6)
    np.testing.assert_allclose(state["scatter"][0], centred.transpose(0, 2, 1) @ centred, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"future": 0}, "at least 1 position ahead"),
        ({"sinks": -1}, "sinks=-1 must be 0 or more"),
        ({"epsilon": -0.1}, "epsilon=-0.1 must be 0 or more"),
    ],
)
def test_wrong_settings_are_refused(settings, sentence):
    with pytest.raises(PolicyError, match=sentence):
        ExpectedAttention(**settings)


def test_its_sinks_are_those_that_are_protected():
    made = build({"name": "mine", "scorer": "expected_attention", "protect": {"sinks": 2}})
    assert made.scorer.sinks == 2
    with pytest.raises(PolicyError, match=r"protects 2 sinks .* counts 4 .* the same number"):
        build({"name": "mine", "scorer": {"name": "expected_attention", "sinks": 4}, "protect": {"sinks": 2}})
