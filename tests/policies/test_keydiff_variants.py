"""The anchors and metrics of KeyDiff Table 2 (policies.md 3.15, A-07, A-08; T-32)."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from views import kept, view

from policies import Policy, PolicyError, Protect
from policies.keydiff import KeyDiff

EXAMPLE = [[1, 0], [0.9, 0.1], [1, 0.2], [-0.2, 1]]
UNEQUAL = [[4, 0], [0, 1], [0.6, 0.8], [-0.1, 0.995]]


def scores(keys, **parameters):
    return KeyDiff(**parameters).score(view(keys=keys)).flatten()


def test_3_15_pairwise_sums():
    """policies.md 3.15."""
    sums = (-scores(EXAMPLE, anchor="pairwise")).tolist()
    assert sums == pytest.approx([2.778, 2.90349, 2.977, 0.717], abs=5e-4)
    assert kept(Policy("", KeyDiff("pairwise")), view(keys=EXAMPLE, budget=2)) == [0, 3]


def test_3_15_the_raw_mean_keeps_other_keys_than_the_normalised_one():
    """policies.md 3.15, T-32."""
    cosines = (-scores(UNEQUAL, anchor="mean")).tolist()
    assert cosines == pytest.approx([0.84948, 0.528, 0.932, 0.440], abs=5e-4)
    assert kept(Policy("", KeyDiff("mean")), view(keys=UNEQUAL, budget=2)) == [1, 3]
    assert kept(Policy("", KeyDiff()), view(keys=UNEQUAL, budget=2)) == [0, 3]


def test_3_15_dot_and_euclid_use_the_mean_of_normalised_keys():
    """policies.md 3.15."""
    keys = torch.tensor(UNEQUAL)
    anchor = F.normalize(keys, dim=-1).mean(0)
    assert torch.allclose(scores(UNEQUAL, metric="dot"), -(keys @ anchor))
    assert torch.allclose(scores(UNEQUAL, metric="euclid"), (keys - anchor).norm(dim=-1))


@pytest.mark.parametrize("count", [4, 5])
def test_a_08_the_median_of_an_even_count_is_the_mean_of_the_middle_two(count):
    """policies.md 3.15."""
    torch.manual_seed(count)
    keys = torch.randn(count, 3)
    ordered = F.normalize(keys, dim=-1).sort(0).values
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    expected = -F.cosine_similarity(keys, median[None], dim=-1)
    assert torch.allclose(scores(keys.tolist(), anchor="median"), expected, atol=1e-6)


@pytest.mark.parametrize("parameters", [
    {"anchor": "mean"}, {"anchor": "median"}, {"anchor": "pairwise"}, {"metric": "dot"}, {"metric": "euclid"},
    {"anchor": "mean", "metric": "euclid"}, {"anchor": "median", "metric": "dot"},
], ids=str)  # fmt: skip
def test_empty_slots_do_not_move_any_anchor(parameters):
    gappy = view(keys=[*EXAMPLE, [50, -50]], positions=[0, 1, 2, 3, -1])
    assert torch.allclose(KeyDiff(**parameters).score(gappy).flatten()[:4], scores(EXAMPLE, **parameters), atol=1e-6)


def test_3_15_pairwise_ranks_like_the_normalised_mean_over_several_tiles():
    """policies.md 3.15, T-32."""
    torch.manual_seed(0)
    keys = torch.randn(300, 8).tolist()
    assert torch.equal(scores(keys, anchor="pairwise").argsort(), scores(keys).argsort())


def test_3_15_the_most_dissimilar_key_survives_by_brute_force():
    """policies.md 3.15: of n keys the one with the least similarity to all others stays, the own 1 included (Eq. 7)."""
    torch.manual_seed(3)
    for _ in range(20):
        keys = torch.randn(6, 3)
        unit = F.normalize(keys, dim=-1)
        total = {
            i: 1 + sum(float(unit[a] @ unit[b]) for a, b in combinations(range(6), 2) if i in (a, b)) for i in range(6)
        }
        assert kept(Policy("", KeyDiff("pairwise")), view(keys=keys.tolist())) == [min(total, key=total.get)]


def test_a_08_euclid_degenerates_to_keeping_long_keys():
    """policies.md 3.15."""
    torch.manual_seed(4)
    keys = F.normalize(torch.randn(40, 16), dim=-1) * torch.linspace(20, 100, 40)[:, None]
    assert kept(Policy("", KeyDiff(metric="euclid")), view(keys=keys.tolist(), budget=5)) == [35, 36, 37, 38, 39]


def test_a_09_recent_keys_are_protected_but_count_in_the_anchor():
    """policies.md 3.15."""
    torch.manual_seed(5)
    keys = torch.randn(20, 4).tolist()
    policy = Policy("", KeyDiff(), protect=Protect(recent=0.25))
    stay = kept(policy, view(keys=keys, budget=9))
    assert {18, 19} <= set(stay)  # floor(0.25 * 9)
    best = [i for i in scores(keys).argsort(descending=True).tolist() if i < 18]
    assert set(stay) == {18, 19, *best[:7]}


@pytest.mark.parametrize(("parameters", "sentence"), [
    ({"anchor": "centre"}, "not one of mean_normed, mean, median, pairwise"),
    ({"metric": "cos"}, "not one of cosine, dot, euclid"),
    ({"anchor": "pairwise", "metric": "dot"}, "sum of cosines"),
])  # fmt: skip
def test_nonsense_is_refused(parameters, sentence):
    with pytest.raises(PolicyError, match=sentence):
        KeyDiff(**parameters)
