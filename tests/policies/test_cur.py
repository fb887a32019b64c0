"""CUR by hand and at the borders of its windows (policies.md 3.21)."""

from __future__ import annotations

import pytest
import torch
from views import kept, view

from policies import Policy, PolicyError, Protect
from policies.cur import CUR

KEYS = [[1, 0], [1, 1], [2, 0]]  # squared norms 1, 2, 4
VALUES = [[0, 3], [1, 0], [1, 1]]  # 9, 1, 2
# Windows of 2: key shares 1/3, 2/3 and 1, value shares .9, .1 and 1. Each line below divides by its sum.
BY_HAND = {
    "kv_product": [0.3 / 1.36667, 0.06667 / 1.36667, 1 / 1.36667],
    "kv_avg": [0.61667 / 2, 0.38333 / 2, 0.5],
    "key": [1 / 6, 2 / 6, 1 / 2],
    "value": [0.45, 0.05, 0.5],
}


def scores(keys, values, positions=None, **settings) -> list[float]:
    """Of one head; empty slots left out, in the order of position."""
    shown = view(keys=keys, values=values, positions=positions)
    own, places = CUR(**settings).score(shown).flatten(), shown.positions.flatten()
    return own[places.argsort()][(places < 0).sum() :].tolist()


@pytest.mark.parametrize("leverage", BY_HAND)
def test_3_21_by_hand(leverage):
    """policies.md 3.21: shares of windows of neighbours, the last of them shorter."""
    assert scores(KEYS, VALUES, leverage=leverage, window=2) == pytest.approx(BY_HAND[leverage], abs=1e-4)


def test_3_21_without_windows_the_shares_are_of_all_slots():
    """policies.md 3.21: products 1x9, 2x1 and 4x2 of 19; a window of all slots is the same."""
    assert scores(KEYS, VALUES, window=0) == pytest.approx([9 / 19, 2 / 19, 8 / 19])
    assert scores(KEYS, VALUES, window=3) == pytest.approx([9 / 19, 2 / 19, 8 / 19])
    assert scores(KEYS, VALUES, window=3, leverage="key") == pytest.approx([1 / 7, 2 / 7, 4 / 7])


def test_3_21_large_norms_stay_and_sinks_by_protection():
    """policies.md 3.21: the opposite of L2, which keeps the smallest keys."""
    shown = view(keys=[[1, 0], [5, 0], [2, 0], [3, 0]], values=[[1, 0]] * 4, budget=2)
    assert kept(Policy("", CUR(window=0)), shown) == [1, 3]
    assert kept(Policy("", CUR(window=0), protect=Protect(sinks=1)), shown) == [0, 1]


@pytest.mark.parametrize("slots", [1, 3, 4, 5, 8, 9])
def test_3_21_a_window_knows_nothing_of_the_others(slots):
    """policies.md 3.21: equal norms give each slot one part of its window, whatever the other windows hold."""
    keys = [[10.0 ** (place // 4), 0.0] for place in range(slots)]
    own = scores(keys, keys, leverage="key", window=4)
    sizes = [min(4, slots - place // 4 * 4) for place in range(slots)]
    windows = -(-slots // 4)
    assert own == pytest.approx([1 / size / windows for size in sizes])


def test_3_21_windows_are_of_slots_present_in_the_order_of_the_text():
    """policies.md 3.21: gaps, empty slots and the order of slots do not matter."""
    draw = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(11, 4, generator=draw).tolist() for _ in range(2))
    straight = scores(keys, values, window=4)
    order = torch.randperm(11, generator=draw)
    there = [3 * place + 5 for place in order.tolist()]
    shuffled = ([keys[i] for i in order], [values[i] for i in order], there)
    assert scores(*shuffled, window=4) == straight
    noise = [[float("nan")] * 4]
    assert scores(noise + shuffled[0], noise + shuffled[1], [-1, *there], window=4) == straight


def test_3_21_a_window_without_norms_scores_nothing():
    """policies.md 3.21: public code divides by zero there."""
    own = scores([[0, 0]] * 2 + [[1, 0]] * 2, [[1, 0]] * 4, window=2)
    assert own == pytest.approx([0, 0, 0.5, 0.5])


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"leverage": "kv"}, "not one of kv_product, kv_avg, key, value"), ({"window": -1}, "1 or more slots"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        CUR(**parameters)
