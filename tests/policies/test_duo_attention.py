"""DuoAttention: which heads retrieve under a budget, worked by hand and counted over whole models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from given_attention import prompt_view, random_attention

from policies import Policy, PolicyError, Protect, Schedule, build
from policies.baselines import Recency
from policies.duo_attention import DuoAttention, head_ranks
from policies.view import ModelShape

PROFILE = [[0.9, 0.1], [0.2, 0.8]]  # two layers of two heads
ONCE = Schedule("after_prompt", "never")


def kept(
    profile, layer: int, slots: int, budget: int, sinks: int = 1, recent: int = 3, group: int = 1
) -> list[list[int]]:
    heads = len(profile[0]) // group
    shown = replace(prompt_view(random_attention(heads, group, 1, slots), budget), layer=layer, layers=len(profile))
    chosen = Policy("duo", Recency(), allocator=DuoAttention(profile), protect=Protect(sinks, recent), schedule=ONCE)
    found, _ = chosen.keep(shown)
    return [head.nonzero().flatten().tolist() for head in found[0]]


def test_worked_example():
    """policies.md 3.26: T = 20, N = 10, 1 + 3 protected: 40 slots; one head takes 16 more, the second the last 8."""
    everything, streaming = list(range(20)), [0, 17, 18, 19]
    assert kept(PROFILE, 0, 20, 10) == [everything, streaming]
    assert kept(PROFILE, 1, 20, 10) == [streaming, [0, *range(9, 20)]]


@pytest.mark.parametrize("budget", [4, 5, 9, 10, 13, 19, 20, 25])
@pytest.mark.parametrize("slots", [20, 33])
def test_all_heads_together_hold_the_budget_exactly(budget, slots):
    total = sum(len(head) for layer in (0, 1) for head in kept(PROFILE, layer, slots, budget))
    assert total == min(budget, slots) * 4


def test_the_profile_decides_which_heads_retrieve_and_the_mean_of_a_group_counts():
    assert head_ranks(((0.9, 0.1), (0.2, 0.8)), 2) == ((0, 3), (2, 1))
    assert head_ranks(((0.9, 0.0, 0.5, 0.5), (0.1, 0.1, 0.2, 0.9)), 2) == ((2, 1), (3, 0))
    assert head_ranks(((0.5, 0.5), (0.5, 0.5)), 2) == ((0, 1), (2, 3)), "ties in the order of the model"
    one, other = (kept(profile, 0, 20, 8) for profile in (PROFILE, [[0.1, 0.9], [0.2, 0.8]]))
    assert [len(head) for head in one] == [len(head) for head in reversed(other)]


def test_a_prompt_within_the_budget_stays_whole():
    assert kept(PROFILE, 1, 7, 7) == [list(range(7))] * 2


def test_a_profile_of_another_model_is_refused():
    sentence = DuoAttention(PROFILE).reason_against_model(ModelShape(layers=3, kv_heads=2, query_heads=2))
    assert sentence.startswith(
        "duo_attention has a profile of 2 layers with 2 query heads each, but the model has 3 layers"
    )
    assert DuoAttention(PROFILE).reason_against_model(ModelShape(layers=2, kv_heads=1, query_heads=2)) == ""
    with pytest.raises(PolicyError, match="was not read"):
        DuoAttention("bundled/testbed-r").targets(
            prompt_view(random_attention(1, 1, 1, 4), 2), torch.zeros(1, 1, 4), torch.zeros(1, 1, 4, dtype=torch.bool)
        )


def test_it_needs_the_whole_prompt():
    with pytest.raises(PolicyError, match=r"set policy\.schedule\.prompt=after_prompt"):
        build({"name": "mine", "scorer": "recency", "allocator": {"name": "duo_attention", "profile": PROFILE}})
