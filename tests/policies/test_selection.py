"""The selection rule of policies.md 1.3: protected first, then scores, and on ties the older token goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from views import Received, kept, view

from policies import Policy, Protect
from policies.scorer import Stateless
from policies.selection import sortable
from policies.tova import TOVA


class Shown(Stateless):
    """Scores are the column sums, any sign."""

    def score(self, view):
        return view.attention.received(1)


def by_the_rule(scores, positions, budget, sinks, recent, length):
    """Rule 1.3 in words: sort filled slots by (protected sink, protected recent, score, newer)."""
    filled = [(s, p) for s, p in zip(scores, positions, strict=True) if p >= 0]

    def rank(slot):
        score, place = slot
        if place < sinks:
            return (2, -place, 0)
        return (1, place, 0) if place >= length - recent else (0, score, place)

    return sorted(place for _, place in sorted(filled, key=rank, reverse=True)[:budget])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_it_is_the_rule_for_ties_signs_gaps_and_protection(data):
    n = data.draw(st.integers(1, 30))
    positions = data.draw(st.lists(st.integers(0, 60), min_size=n, max_size=n, unique=True))
    holes = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    positions = [-1 if hole and i else p for i, (p, hole) in enumerate(zip(positions, holes, strict=True))]
    scores = data.draw(st.lists(st.sampled_from([-1.5, -0.0, 0.0, 0.25, 1e-30, -1e-30, 3.0]), min_size=n, max_size=n))
    budget, sinks, recent = (data.draw(st.integers(low, 33)) for low in (1, 0, 0))
    length = max(positions) + 1
    shown = view(sums=scores, positions=positions, budget=budget, length=length)
    policy = Policy("shown", Shown(), protect=Protect(sinks=sinks, recent=recent))
    assert kept(policy, shown) == by_the_rule(scores, positions, budget, sinks, recent, length)
    assert kept(policy, replace(shown, is_full=False)) == kept(policy, shown)  # that there are no holes only saves time


def test_equal_scores_keep_the_newer():
    assert kept(Policy("tova", TOVA()), view(sums=[0.25] * 4, budget=3)) == [1, 2, 3]


def test_order_of_slots_does_not_matter():
    torch.manual_seed(2)
    scores, order = torch.rand(20), torch.randperm(20)
    policy = Policy("tova", TOVA(), protect=Protect(sinks=2, recent=3))
    straight = kept(policy, view(sums=scores.tolist(), budget=9))
    assert kept(policy, view(sums=scores[order].tolist(), positions=order.tolist(), budget=9)) == straight


def test_rows_of_different_budgets_are_selected_together():
    one = view(sums=[0.1, 0.4, 0.2, 0.3])
    both = replace(
        one,
        positions=one.positions.repeat(3, 1, 1),
        attention=Received(one.attention.received(1).repeat(3, 1, 1)),
        counts=(4, 4, 4),
        lengths=(4, 4, 4),
        budgets=(1, 9, 3),
    )
    mask, _ = Policy("tova", TOVA()).keep(both)
    assert [row.nonzero().flatten().tolist() for row in mask[:, 0]] == [[1], [0, 1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("value", [torch.inf, 3.4e38, 1.0, 1e-45, 0.0])
def test_the_integer_order_is_the_order_of_floats(value):
    low, high = sortable(torch.tensor([-value, value]))
    assert (low < high) == (value > 0)
    assert sortable(torch.tensor(-0.0)) == sortable(torch.tensor(0.0))


def test_nan_is_reported_and_only_where_a_token_is():
    policy = Policy("shown", Shown())
    _, broken = policy.keep(view(sums=[1.0, float("nan"), 2.0], budget=2))
    assert broken.tolist() == [True]
    _, broken = policy.keep(view(sums=[1.0, float("nan"), 2.0], positions=[0, -1, 1], budget=1))
    assert broken.tolist() == [False]
