"""The micro-examples of policies.md, section 3, for the policies that exist."""

from __future__ import annotations

import pytest
import torch
from views import kept, view

from policies import Policy, Protect
from policies.baselines import Recency
from policies.caote import CAOTE, FastCAOTE
from policies.h2o import H2O
from policies.keydiff import KeyDiff
from policies.snapkv import SnapKV, pool_neighbours
from policies.tova import TOVA


def test_3_2_window_keeps_the_newest():
    """policies.md 3.2, T-20."""
    assert kept(Policy("window", Recency()), view(10, budget=4)) == [6, 7, 8, 9]


def test_3_3_sink_keeps_the_first_four_and_the_newest():
    """policies.md 3.3, T-20."""
    assert kept(Policy("sink", Recency(), protect=Protect(sinks=4)), view(20, budget=7)) == [
        0,
        1,
        2,
        3,
        17,
        18,
        19,
    ]


def test_3_3_without_sinks_it_is_the_window():
    """policies.md 3.3, T-20."""
    shown = view(20, budget=7)
    sink, window = Policy("sink", Recency(), protect=Protect(sinks=0)), Policy("window", Recency())
    assert kept(sink, shown) == kept(window, shown)


def test_3_4_h2o_accumulates_over_two_blocks():
    """policies.md 3.4, T-21."""
    first = H2O().update(view(sums=[1.6, 0.4], state=[0, 0]))["received"]
    assert first.flatten().tolist() == pytest.approx([1.6, 0.4])
    second = H2O().update(view(sums=[0.7, 0.4, 0.5, 0.4], state=[1.6, 0.4, 0, 0]))["received"]
    assert second.flatten().tolist() == pytest.approx([2.3, 0.8, 0.5, 0.4])


@pytest.mark.parametrize(("recent", "survivors"), [(0, [0, 1]), (0.5, [0, 3])])
def test_3_4_h2o_with_and_without_a_recent_half(recent, survivors):
    """policies.md 3.4, T-21."""
    policy = Policy("h2o", H2O(), protect=Protect(recent=recent))
    assert kept(policy, view(state=[2.3, 0.8, 0.5, 0.4], budget=2)) == survivors


def test_3_4_h2o_freezes_in_decode():
    """policies.md 3.4, T-21."""
    shown = view(state=[2.3, 0.8, 0.0], sums=[0.4, 0.2, 0.4], budget=2)
    state = H2O().update(shown)["received"]
    assert state.flatten().tolist() == pytest.approx([2.7, 1.0, 0.4])
    assert kept(Policy("h2o", H2O()), view(state=state.flatten().tolist(), budget=2)) == [0, 1]


def test_3_5_tova_averages_the_group():
    """policies.md 3.5."""
    rows = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]])
    assert kept(Policy("tova", TOVA()), view(sums=rows.mean(0).tolist(), budget=2)) == [0, 3]


POOLED = {
    "avg": [0.1167, 0.1233, 0.1100, 0.0767, 0.0767, 0.2067, 0.1400],
    "avg_nopad": [0.1750, 0.1233, 0.1100, 0.0767, 0.0767, 0.2067, 0.2100],
    "max": [0.3, 0.3, 0.3, 0.2, 0.2, 0.4, 0.4],
}
LINE = [0.05, 0.30, 0.02, 0.01, 0.20, 0.02, 0.40]


@pytest.mark.parametrize("pool", POOLED)
def test_3_6_the_three_pooling_conventions(pool):
    """policies.md 3.6, T-23."""
    shown = view(sums=LINE)
    pooled = SnapKV(window=1, kernel=3, pool=pool).score(shown).flatten().tolist()
    assert pooled == pytest.approx(POOLED[pool], abs=5e-5)


@pytest.mark.parametrize(("pool", "survivors"), [("avg", [1, 5, 6]), ("avg_nopad", [0, 5, 6]), ("max", [2, 5, 6])])
def test_3_6_they_keep_different_slots(pool, survivors):
    """policies.md 3.6, T-23."""
    policy = Policy("snapkv", SnapKV(window=1, kernel=3, pool=pool))
    assert kept(policy, view(sums=LINE, budget=3)) == survivors


@pytest.mark.parametrize("pool", POOLED)
def test_3_6_pooling_follows_positions_and_ignores_empty_slots(pool):
    """policies.md 3.6."""
    order = [4, 0, 6, 2, 5, 1, 3]
    place = torch.tensor([[[*order, -1, -1]]], dtype=torch.int32)
    scores = torch.tensor([[[LINE[p] for p in order] + [9.0, 9.0]]])
    pooled = pool_neighbours(scores, place, 3, pool)[0, 0]
    assert pooled[:7].tolist() == pytest.approx([POOLED[pool][p] for p in order], abs=5e-5)


def test_3_15_keydiff_keeps_the_odd_one_out():
    """policies.md 3.15."""
    shown = view(keys=[[1, 0], [0.9, 0.1], [1, 0.2], [-0.2, 1]], budget=2)
    cosines = (-KeyDiff().score(shown)).flatten().tolist()
    assert cosines == pytest.approx([0.9074, 0.9482, 0.9722, 0.2342], abs=5e-5)
    assert kept(Policy("keydiff", KeyDiff()), shown) == [0, 3]


def test_3_15_keydiff_uses_the_mean_of_normalised_keys():
    """policies.md 3.15, T-32."""
    shown = view(keys=[[4, 0], [0, 1], [0.6, 0.8], [-0.1, 0.995]], budget=2)
    cosines = (-KeyDiff().score(shown)).flatten().tolist()
    assert cosines == pytest.approx([0.473, 0.881, 0.989, 0.829], abs=5e-4)
    assert kept(Policy("keydiff", KeyDiff()), shown) == [0, 3]


def test_3_15_keydiff_is_invariant_to_key_lengths_and_common_rotations():
    """policies.md 3.15, T-32."""
    torch.manual_seed(0)
    keys = torch.randn(30, 8)
    turn = torch.linalg.qr(torch.randn(8, 8)).Q
    policy = Policy("keydiff", KeyDiff())
    plain = kept(policy, view(keys=keys.tolist(), budget=9))
    assert kept(policy, view(keys=(keys * torch.rand(30, 1).add(0.1)).tolist(), budget=9)) == plain
    assert kept(policy, view(keys=(keys @ turn).tolist(), budget=9)) == plain


def test_3_15_keydiff_ranks_like_pairwise_similarity():
    """policies.md 3.15, T-32."""
    torch.manual_seed(1)
    keys = torch.randn(40, 8)
    unit = torch.nn.functional.normalize(keys, dim=-1)
    pairwise = (unit @ unit.T).sum(-1)
    score = KeyDiff().score(view(keys=keys.tolist())).flatten()
    assert torch.equal(score.argsort(), pairwise.argsort(descending=True))


def test_3_15_empty_slots_do_not_move_the_anchor():
    """policies.md 3.15."""
    keys = [[1, 0], [0.9, 0.1], [1, 0.2], [-0.2, 1]]
    full = KeyDiff().score(view(keys=keys)).flatten()
    gappy = KeyDiff().score(view(keys=[*keys, [50, -50]], positions=[0, 1, 2, 3, -1])).flatten()
    assert torch.equal(full, gappy[:4])


H, V = [0.5, 0.3, 0.2], [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("correction", "scores"), [(CAOTE(), [0.5831, 0.3687, 0.1458]), (FastCAOTE(), [0.7454, 0.3194, 0.1179])]
)
def test_3_16_caote_numbers(correction, scores):
    """policies.md 3.16, T-33."""
    shown = view(values=V)
    assert correction.correct(torch.tensor([[H]]), shown).flatten().tolist() == pytest.approx(scores, abs=5e-5)


def test_3_16_caote_turns_the_order_of_attention_around():
    """policies.md 3.16, T-33."""
    shown = view(sums=[0.45, 0.25, 0.30], values=[[1, 0], [-2, 2], [0.9, 0.1]], budget=2)
    assert kept(Policy("tova", TOVA()), shown) == [0, 2]
    assert kept(Policy("caote", TOVA(), CAOTE()), shown) == [0, 1]
    scores = Policy("caote", TOVA(), CAOTE()).scores(shown).flatten().tolist()
    assert scores == pytest.approx([0.772, 0.888, 0.345], abs=5e-4)


def test_3_16_equal_values_tie_at_zero_and_the_newer_stay():
    """policies.md 3.16, T-33."""
    shown = view(sums=[0.4, 0.3, 0.2, 0.1], values=[[0.3, 0.7]] * 4, budget=2)
    policy = Policy("caote", TOVA(), CAOTE())
    assert policy.scores(shown).abs().max() == 0
    assert kept(policy, shown) == [2, 3]


def test_3_16_a_slot_with_all_the_mass_is_never_evicted():
    """policies.md 3.16, T-33."""
    shown = view(sums=[0.0, 1.0, 0.0], values=[[9, 9], [1, 0], [8, 8]], budget=1)
    assert kept(Policy("caote", TOVA(), CAOTE()), shown) == [1]


def test_3_16_no_mass_at_all_counts_as_uniform():
    """policies.md 3.16."""
    shown = view(sums=[0.0, 0.0, 0.0], values=V)
    uniform = view(sums=[1 / 3] * 3, values=V)
    policy = Policy("caote", TOVA(), CAOTE())
    assert torch.allclose(policy.scores(shown), policy.scores(uniform))
