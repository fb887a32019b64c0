"""Scissorhands in HashEvict's reading (policies.md 3.11, T-28), and the prompt step of its suite (3.4)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from views import Given, kept, view

from policies import Policy, PolicyError, Protect, Schedule
from policies.h2o import H2O
from policies.policy import PromptStage
from policies.scissorhands import Scissorhands, bits_set_in_bytes
from policies.snapkv import SnapKV


def empty(scorer, n):
    return {name: torch.zeros(1, 1, n, *kind.shape, dtype=kind.dtype) for name, kind in scorer.state.items()}


def observed(scorer, state, sums, length, budget=100, chunk=1):
    shown = view(sums=sums, length=length, budget=budget)
    shown = replace(shown, attention=Given(torch.tensor([[sums]]).float(), chunk=chunk), state=state)
    return replace(shown, state=scorer.update(shown))


def shares(scorer, shown):
    return scorer.score(shown).flatten().tolist()


def test_3_11_bits_at_the_uniform_level_count():
    """policies.md 3.11, T-28."""
    scorer = Scissorhands()
    shown = observed(scorer, empty(scorer, 4), [0.25, 0.2499, 0.5, 0.0001], length=4)
    assert shares(scorer, shown) == [1, 0, 1, 0]


def test_3_11_the_prompt_is_one_observation_of_the_mean_over_queries_that_saw_the_token():
    """policies.md 3.11."""
    scorer = Scissorhands()
    shown = observed(scorer, empty(scorer, 3), [1.2, 1.0, 0.3], length=3, budget=2, chunk=3)
    # Means 0.4, 0.5 and 0.3 against 1/2: two slots persist.
    assert shares(scorer, shown) == [0, 1, 0]
    assert shown.state["observations"].flatten().tolist() == [1, 1, 1]


def test_3_11_the_ring_wraps_and_the_score_is_the_mean_of_the_last_observations():
    """policies.md 3.11, T-28."""
    scorer = Scissorhands(history=3)
    state, shown = empty(scorer, 2), None
    for step, level in enumerate([1, 0, 0, 0, 1]):
        shown = observed(scorer, state, [0.5 * level, 1.0], length=2 + step)
        state = shown.state
        expected = [1, 1 / 2, 1 / 3, 0, 1 / 3][step]
        assert shares(scorer, shown) == pytest.approx([expected, 1])


@pytest.mark.parametrize(("history", "octets"), [(400, 50), (1, 1), (8, 1), (9, 2)])
def test_5_3_the_ring_is_packed_to_bits(history, octets):
    """policies.md 3.11."""
    state = Scissorhands(history).state
    assert state["ring"].nbytes == octets
    assert state["observations"].nbytes == 4


def test_all_bytes_are_counted():
    octets = torch.arange(256).to(torch.uint8)
    assert bits_set_in_bytes(octets).tolist() == [i.bit_count() if hasattr(i, "bit_count") else bin(i).count("1")
                                                  for i in range(256)]  # fmt: skip


def test_3_11_a_row_that_fed_nothing_observed_nothing():
    """policies.md 3.11."""
    scorer = Scissorhands()
    before = observed(scorer, empty(scorer, 2), [0.6, 0.4], length=2)
    after = observed(scorer, before.state, [0.0, 0.0], length=2, chunk=0)
    assert all(torch.equal(before.state[name], after.state[name]) for name in scorer.state)


def test_1_3_nan_attention_is_reported():
    scorer = Scissorhands()
    shown = observed(scorer, empty(scorer, 3), [0.5, math.nan, 0.2], length=3, budget=2)
    assert Policy("", scorer).keep(shown)[1].tolist() == [True]


def test_3_11_the_lowest_record_goes_and_sinks_and_recent_tokens_stay():
    """policies.md 3.11, T-28."""
    scorer = Scissorhands()
    policy = Policy("", scorer, protect=Protect(sinks=1, recent=1), schedule=Schedule("after_prompt", evict_first=True))
    shown = observed(scorer, empty(scorer, 5), [0.0, 0.5, 0.1, 0.4, 0.0], length=5, budget=4)
    assert kept(policy, shown) == [0, 1, 3, 4]


def test_history_must_remember_something():
    with pytest.raises(PolicyError, match="at least 1 observation"):
        Scissorhands(history=0)


SNAP = PromptStage(SnapKV(window=16, kernel=5, pool="avg_nopad"), Protect(sinks=4, recent=16))


def test_3_4_the_prompt_step_forces_first_four_and_last_sixteen_in():
    """policies.md 3.4."""
    torch.manual_seed(0)
    sums = torch.rand(40)
    policy = Policy("", H2O("mean"), protect=Protect(4, 10), prompt_stage=SNAP, schedule=Schedule("after_prompt"))
    shown = view(sums=sums.tolist(), budget=24)
    near = [sums[max(0, j - 2) : j + 3].mean() for j in range(40)]
    middle = sorted(range(4, 24), key=lambda j: near[j], reverse=True)[:4]
    assert kept(policy, shown) == sorted([*range(4), *middle, *range(24, 40)])


def test_3_4_in_decode_the_prompt_step_is_over():
    """policies.md 3.4."""
    policy = Policy("", H2O("mean"), prompt_stage=SNAP, schedule=Schedule("after_prompt"))
    received, observations = torch.tensor([[[4.0, 3.0, 6.0]]]), torch.tensor([[[4.0, 1.0, 3.0]]])
    shown = view(3, budget=2)
    decoding = replace(shown, phase="decode", state={"received": received, "observations": observations})
    assert kept(policy, decoding) == [1, 2]  # means 1, 3, 2
