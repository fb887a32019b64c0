"""LagKV by hand, at the borders of its partitions, and under the sinks that the policy protects (policies.md 3.19)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from views import kept, view

from policies import Policy, PolicyError, Protect, build
from policies.lagkv import LagKV

KEYS = [[1, 0], [2, 4], [0, 0], [2, 4]]
VALUES = [[1, 1], [1, 0], [0, 0], [1, 1]]
# The next partition's keys go from (0, 0) to (2, 4): tokens 0 and 1 become (.5, 0) and (1, 1), with deviations .3536
# and 0, softmax .5875 and .4125. Values go from (0, 0) to (1, 1): deviations 0 and .7071, softmax .3302 and .6698.
MEANS = [0.4589, 0.5411, 1, 1]


def scores(keys, values, positions=None, **settings) -> list[float]:
    """Of one head; empty slots left out, in the order of position."""
    shown = view(keys=keys, values=values, positions=positions)
    own = LagKV(**settings).score(shown).flatten()
    places = shown.positions.flatten()
    return own[places.argsort()][(places < 0).sum() :].tolist()


def drawn(n: int, seed: int = 0) -> tuple[list, list]:
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, 4, generator=draw).tolist() for _ in range(2))


def test_3_19_by_hand():
    """policies.md 3.19: the next partition scales, channels deviate, keys and values count alike."""
    assert scores(KEYS, VALUES, lag=2, sinks=0, compare="across") == pytest.approx(MEANS, abs=1e-4)
    assert scores(KEYS, VALUES, lag=2, sinks=0) == [0, 0.5, 1, 1]
    assert kept(Policy("", LagKV(2, 0)), view(keys=KEYS, values=VALUES, budget=3)) == [1, 2, 3]


def test_3_19_keys_alone_would_keep_the_other_token():
    """policies.md 3.19: with equal values the keys decide, and token 0 deviates more."""
    assert scores(KEYS, [[1, 1]] * 4, lag=2, sinks=0) == [0.5, 0, 1, 1]


def test_3_19_the_partition_before_scales_nothing():
    """policies.md 3.19: the first partition may be anything without changing what the second scores."""
    keys, values = drawn(9)
    one = scores(keys, values, lag=3, sinks=0, compare="across")
    other = scores([[9, -9, 5, 1]] * 3 + keys[3:], values, lag=3, sinks=0, compare="across")
    assert one[3:6] == other[3:6]
    assert one[:3] != other[:3]


@pytest.mark.parametrize(("slots", "scored"), [(1, 0), (5, 0), (6, 3), (8, 3), (9, 6), (11, 6), (12, 9)])
@pytest.mark.parametrize("sinks", [0, 2])
def test_3_19_only_partitions_with_a_whole_next_one_are_scored(slots, scored, sinks):
    """policies.md 3.19: sinks, the last whole partition and the rest after it score 1, more than all others."""
    own = scores(*drawn(slots + sinks), lag=3, sinks=sinks)
    assert [score < 1 for score in own] == [False] * sinks + [True] * scored + [False] * (slots - scored)
    for start in range(sinks, sinks + scored, 3):  # the ranks of three
        assert sorted(own[start : start + 3]) == pytest.approx([0, 1 / 3, 2 / 3])


def test_3_19_every_partition_loses_alike():
    """policies.md 3.19: within partitions, as the paper's top-k; across, the sharpest partition keeps most."""
    keys, values = drawn(16, 3)
    keys[0] = [50, -50, 50, -50]
    within = kept(Policy("", LagKV(4, 0)), view(keys=keys, values=values, budget=10))
    assert [sum(start <= place < start + 4 for place in within) for start in (0, 4, 8)] == [2, 2, 2]
    across = kept(Policy("", LagKV(4, 0, "across")), view(keys=keys, values=values, budget=10))
    assert {0, 12, 13, 14, 15} <= set(across)
    assert [sum(start <= place < start + 4 for place in across) for start in (0, 4, 8)] != [2, 2, 2]


def test_3_19_short_caches_keep_sinks_and_the_newest():
    """policies.md 3.19: below two partitions there is nothing to compare with."""
    keys, values = drawn(20)
    policy = Policy("", LagKV(lag=9, sinks=4), protect=Protect(sinks=4))
    assert kept(policy, view(keys=keys, values=values, budget=7)) == [0, 1, 2, 3, 17, 18, 19]


def test_3_19_partitions_are_made_of_the_slots_present():
    """policies.md 3.19: gaps in the text, empty slots and the order of slots do not matter."""
    keys, values = drawn(14)
    straight = scores(keys, values, lag=3, sinks=2)
    draw = torch.randperm(14, generator=torch.Generator().manual_seed(1))
    gappy = [0, 1, *range(10, 58, 4)]  # the sinks and twelve others
    shuffled = ([keys[i] for i in draw], [values[i] for i in draw], [gappy[i] for i in draw])
    assert scores(*shuffled, lag=3, sinks=2) == straight
    with_empty = ([[7, 7, 7, 7], *shuffled[0]], [[7, 7, 7, 7], *shuffled[1]], [-1, *shuffled[2]])
    assert scores(*with_empty, lag=3, sinks=2) == straight


def test_3_19_a_constant_channel_counts_nothing_but_hides_no_nan():
    """policies.md 3.19: public code divides by zero there."""
    flat = [[*key[:3], 2.0] for key in drawn(8)[0]]
    lifted = [[*key[:3], 5.0] for key in flat[:4]] + flat[4:]
    values = drawn(8)[1]
    assert scores(flat, values, lag=4, sinks=0, compare="across") == scores(
        lifted, values, lag=4, sinks=0, compare="across"
    )
    flat[1][3] = float("nan")
    for compare in ("within", "across"):
        own = scores(flat, values, lag=4, sinks=0, compare=compare)
        assert all(score != score for score in own[:4])
        assert own[4:] == [1] * 4


def test_3_19_the_scale_of_a_channel_does_not_matter():
    """policies.md 3.19: every channel is read against its own range."""
    keys, values = (torch.tensor(each) for each in drawn(12))
    factors, shifts = torch.tensor([0.5, 2, 8, 32]), torch.tensor([1.0, -3, 0, 7])
    moved = scores((keys * factors + shifts).tolist(), (values * factors).tolist(), lag=4, sinks=0, compare="across")
    straight = scores(keys.tolist(), values.tolist(), lag=4, sinks=0, compare="across")
    assert moved == pytest.approx(straight, abs=1e-5)  # the shifts cost a few bits of fp32


def test_3_19_equal_scores_of_a_partition_lose_the_older():
    """policies.md 3.19: ranks follow the rule of 1.3."""
    assert scores([[1, 1]] * 6, [[2, 3]] * 6, lag=3, sinks=0) == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])


def test_3_19_rows_with_different_counts():
    """policies.md 3.19: each head partitions what it holds."""
    keys, values = drawn(9)
    full, short = view(keys=keys, values=values), view(keys=keys, values=values, positions=[*range(7), -1, -1])
    both = {name: torch.cat([getattr(full, name), getattr(short, name)]) for name in ("keys", "values", "positions")}
    together = LagKV(3, 0).score(replace(full, is_full=False, **both))
    assert together[0].flatten().tolist() == scores(keys, values, lag=3, sinks=0)
    assert together[1].flatten()[:7].tolist() == scores(keys[:7], values[:7], lag=3, sinks=0)


def test_the_scorers_sinks_are_the_protected_ones():
    policy = build({"scorer": {"name": "lagkv", "lag": 8}, "protect": {"sinks": 6}})
    assert policy.scorer == LagKV(8, 6)
    assert build({"scorer": "lagkv"}).scorer.sinks == 0
    assert build({"scorer": {"name": "lagkv", "sinks": 6}, "protect": {"sinks": 6}}).scorer.sinks == 6
    with pytest.raises(PolicyError, match=r"protects 4 sinks .* counts 6 .* the same number"):
        build({"scorer": {"name": "lagkv", "sinks": 6}, "protect": {"sinks": 4}})


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"lag": 0}, "at least 1 slot"), ({"sinks": -1}, "0 or more"), ({"compare": "both"}, "not one of within, across"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        LagKV(**parameters)
