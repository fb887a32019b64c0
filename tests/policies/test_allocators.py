"""Budgets of different sizes: the tables and invariants of policies.md 3.7 to 3.9 (T-24, T-25, T-26)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from given_attention import kept_per_head, prompt_view, random_attention
from reference import headkv as slow_headkv

from policies import Policy, PolicyError, Protect, Schedule, build
from policies.ada import AdaKV, best_owned
from policies.headkv import HeadKV, shared_pool
from policies.headkv import prefix_slots as headkv_slots
from policies.pyramid import PyramidKV, prefix_slots
from policies.scorer import Stateless
from policies.selection import as_written, largest_remainder
from policies.snapkv import SnapKV

ONCE = Schedule(prompt="after_prompt", decode="never")


def over_snap(allocator=None, window: int = 3, kernel: int = 3) -> Policy:
    scorer = SnapKV(window=window, kernel=kernel, pool="max", pool_over="prefix")
    return Policy("p", scorer, allocator=allocator, protect=Protect(recent=window), schedule=ONCE)


def test_a_share_is_the_decimal_that_was_written():
    assert as_written(0.29) * 100 == 29
    assert largest_remainder([as_written(x) for x in (2.8, 1.2)], 4) == (3, 1)


# 3.6, T-23: pooling before the window, short prompts.


def test_3_6_the_prefix_is_pooled_without_the_window():
    """policies.md 3.6."""
    given = random_attention(1, 1, 3, 9)
    given[..., -3:] += 10  # the window's own scores must not leak into its neighbours
    score = SnapKV(window=3, kernel=3, pool="max", pool_over="prefix").score(prompt_view(given, 5))[0, 0]
    sums = given[0, 0].sum(0)
    assert score[:6].tolist() == pytest.approx([sums[max(0, j - 1) : min(6, j + 2)].max().item() for j in range(6)])
    assert score[6:].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("slots", "budget"), [(9, 9), (9, 10), (2, 5)])
def test_3_6_a_prompt_within_its_budget_stays_whole(slots, budget):
    """policies.md 3.6, T-23."""
    shown = prompt_view(random_attention(2, 2, slots, slots), budget)
    for allocator in (None, PyramidKV(window=3), AdaKV(window=3), HeadKV([[1.0, 0.1, 0.1, 0.1]], 1.01, window=3)):
        assert kept_per_head(over_snap(allocator), shown) == [list(range(slots))] * 2


# 3.7, T-24: PyramidKV.


@pytest.mark.parametrize(
    ("budget", "window", "first", "last", "total", "target"),
    [
        (128, 8, 234, 17, 4016, 3840),
        (128, 16, 219, 33, 4032, 3584),
        (128, 32, 188, 33, 3536, 3072),
        (256, 32, 437, 34, 7536, 7168),
        (512, 32, 936, 37, 15568, 15360),
        (1024, 32, 1935, 75, 32160, 31744),
    ],
)
def test_3_7_the_table_of_both_schedules(budget, window, first, last, total, target):
    """policies.md 3.7, T-24."""
    public = prefix_slots(budget - window, 10**6, 32, 20, "public_code")
    assert (public[0], public[-1], sum(public)) == (first, last, total)
    exact = prefix_slots(budget - window, 10**6, 32, 20, "exact")
    assert sum(exact) == target
    assert exact[0] == first
    assert list(exact) == sorted(exact, reverse=True)


def test_3_7_the_small_example():
    """policies.md 3.7, T-24."""
    assert prefix_slots(8, 1000, 4, 20, "public_code") == (16, 11, 6, 1)
    assert prefix_slots(8, 1000, 4, 20, "exact") == (16, 11, 5, 0)
    assert prefix_slots(8, 1000, 4, 1, "exact") == (8, 8, 8, 8)
    assert prefix_slots(8, 1000, 1, 20, "public_code") == (8,)


def test_3_7_a_short_prompt_flattens_the_pyramid():
    """policies.md 3.7, T-24."""
    slots = prefix_slots(96, 100, 3, 20, "exact")
    assert slots == (100, 96, 92)


def test_3_7_each_prompt_has_its_own_schedule():
    """policies.md 3.7, T-24."""
    allocator = PyramidKV(window=2)
    for length, expected in ((12, [12, 11, 9, 8]), (60, [18, 13, 7, 2]), (12, [12, 11, 9, 8])):
        shown = [
            prompt_view(random_attention(2, 1, 4, length), 10, layer=layer, layers=4, lengths=(length,))
            for layer in range(4)
        ]
        sizes = [len(kept_per_head(over_snap(allocator, window=2), view)[1]) for view in shown]
        assert sizes == expected


def test_3_7_public_code_is_not_exact():
    """policies.md 3.7."""
    assert PyramidKV().exact
    assert not PyramidKV(schedule="public_code").exact
    assert not over_snap(PyramidKV(schedule="public_code")).keeps_to_budget


# 3.8, T-25: Ada.


def ada_targets(allocator: AdaKV, scores: torch.Tensor, budget: int) -> list[int]:
    """``scores`` (H, P + window), the window last."""
    shown = prompt_view(torch.zeros(len(scores), 1, 1, scores.shape[1]), budget)
    protected = (shown.positions >= scores.shape[1] - allocator.window) & shown.filled
    return allocator.targets(shown, scores[None], protected).flatten().tolist()


EXAMPLE = torch.tensor([[0.40, 0.30, 0.25, 0.01], [0.20, 0.10, 0.05, 0.02]])


def test_3_8_the_example():
    """policies.md 3.8, T-25."""
    shown = prompt_view(torch.zeros(2, 1, 1, 4), 2)
    owned = best_owned(EXAMPLE[None], shown, shown.filled, torch.tensor([[[4]]]))
    assert owned.flatten().tolist() == [3, 1]
    assert ada_targets(AdaKV(window=0), EXAMPLE, 2) == [3, 1]
    assert ada_targets(AdaKV(window=0, rounding="public_code"), EXAMPLE, 2) == [2, 1]


def held_by_ada(scores: torch.Tensor, budget: int, sinks: int, **settings: object) -> list[list[int]]:
    """``scores`` (H, N), no window; the policy is built from its parts, as a configuration is."""
    shown = prompt_view(torch.zeros(len(scores), 1, 1, scores.shape[1]), budget)
    made = build(
        {
            "name": "mine",
            "scorer": "snapkv",
            "allocator": {"name": "ada", **settings},
            "protect": {"sinks": sinks},
            "schedule": {"prompt": "after_prompt", "decode": "never"},
        }
    )
    return kept_per_head(replace(made, scorer=Given(scores[None])), shown)


@dataclass(frozen=True)
class Given(Stateless):
    """Scores that an example gives."""

    scores: torch.Tensor

    def score(self, view):
        return self.scores


LOPSIDED = torch.stack([torch.arange(12.0) + 100, torch.arange(12.0)])
CLOSE = torch.tensor([[0, 0, 9.0, 8, 7, 1, 1, 1], [0, 0, 6.0, 5, 4, 3, 2, 1]])


@pytest.mark.parametrize(
    ("scores", "budget", "settings", "kept"),
    [
        (LOPSIDED, 5, {"mix": "safeguard"}, [[0, 1, 6, 7, 8, 9, 10, 11], [0, 1]]),
        (CLOSE, 4, {"mix": "safeguard"}, [[0, 1, 2, 3, 4], [0, 1, 2]]),
        (LOPSIDED, 5, {"alpha": 0.0}, [[0, 1, 6, 7, 8, 9, 10, 11], [0, 1]]),
        (LOPSIDED, 5, {"alpha": 1.0}, [[0, 1, 9, 10, 11], [0, 1, 9, 10, 11]]),
    ],
)
def test_3_8_sinks_are_inside_the_budget_and_no_head_loses_them(scores, budget, settings, kept):
    """policies.md 3.8. The safeguard's are what kvpress 0.5.5 keeps, whose sinks have the layer's largest scores."""
    assert held_by_ada(scores, budget, sinks=2, **settings) == kept


def test_3_8_identical_heads_share_equally_whatever_their_ties():
    """policies.md 3.8, T-25."""
    for scores in (torch.zeros(3, 9), torch.arange(9.0).repeat(3, 1)):
        assert ada_targets(AdaKV(window=0, alpha=0), scores, 4) == [4, 4, 4]


def test_3_8_alpha_one_is_snapkv():
    """policies.md 3.8, T-25."""
    shown = prompt_view(random_attention(4, 2, 6, 30), 11)
    assert kept_per_head(over_snap(AdaKV(window=3, alpha=1)), shown) == kept_per_head(over_snap(), shown)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.2, 1 / 3, 0.9])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("base", ["uniform", "pyramid"])
def test_3_8_the_layers_total_is_exact_and_heads_keep_their_own_best(alpha, normalize, base):
    """policies.md 3.8, T-25."""
    allocator = AdaKV(window=3, alpha=alpha, normalize=normalize, base=base)
    for budget in (20, 11, 5):
        shown = prompt_view(random_attention(4, 2, 6, 30, seed=3), budget, layer=1, layers=3)
        policy = over_snap(allocator)
        kept = kept_per_head(policy, shown)
        assert sum(map(len, kept)) == 4 * budget  # the middle layer of a pyramid has the average
        for own, scores in zip(kept, policy.scores(shown)[0, :, :27], strict=True):
            ranking = sorted(range(27), key=lambda place: (scores[place], place), reverse=True)
            assert own == [*sorted(ranking[: len(own) - 3]), 27, 28, 29]


def test_3_8_decode_has_no_scores_to_compare():
    """policies.md 3.8."""
    with pytest.raises(PolicyError, match="decode=never"):
        over_snap(AdaKV(window=3)).keep(prompt_view(random_attention(2, 1, 1, 9), 5, phase="decode"))


# 3.9, T-26: HeadKV.


def test_3_9_the_example():
    """policies.md 3.9, T-26."""
    assert shared_pool(120, 1.2) == (100, 20)
    assert shared_pool(96, 1.005) == (95.0, 1.0)  # float floor division
    for rounding in ("public_code", "largest_remainder"):
        assert headkv_slots(((0.7, 0.1), (0.1, 0.1)), 2, 120, 1.2, 1.0, rounding) == ((300, 60), (60, 60))


@pytest.mark.parametrize("beta", [1.005, 1.5, 10])
def test_3_9_a_uniform_profile_is_snapkv(beta):
    """policies.md 3.9, T-26."""
    shown = prompt_view(random_attention(2, 2, 9, 40), 20)
    headkv = over_snap(HeadKV([[1.0] * 4], beta, window=8), window=8)
    assert kept_per_head(headkv, shown) == kept_per_head(over_snap(window=8), shown)


@pytest.mark.parametrize("group", [1, 2, 4, 7])
def test_3_9_groups_get_the_mean_and_the_total_holds(group):
    """policies.md 3.9, T-26."""
    drawn = torch.rand(3, 2 * group, generator=torch.Generator().manual_seed(group)).tolist()
    table = tuple(tuple(row) for row in drawn)
    exact = headkv_slots(table, 2, 96, 1.2, 1.0, "largest_remainder")
    public = headkv_slots(table, 2, 96, 1.2, 1.0, "public_code")
    assert sum(map(sum, exact)) == 3 * 2 * 96
    weights = slow_headkv.importance(
        {f"{la}-{h}": [drawn[la][h]] for la in range(3) for h in range(2 * group)}, 3, 2 * group
    )
    slow = slow_headkv.kv_head_capacities(slow_headkv.query_head_capacities(weights, 96, 1.2), group)
    assert [list(row) for row in public] == slow.tolist()
    assert all(abs(a - b) <= 2 for x, y in zip(exact, public, strict=True) for a, b in zip(x, y, strict=True))


def test_3_9_capacity_beyond_the_prompt_is_lost():
    """policies.md 3.9."""
    shown = prompt_view(random_attention(2, 1, 4, 20), 15)
    kept = kept_per_head(over_snap(HeadKV([[1.0, 0.0]], 1.005, window=2), window=2), shown)
    assert [len(own) for own in kept] == [20, 2 + 1]


def test_3_9_a_profile_of_another_layout_is_refused():
    """policies.md 3.9."""
    shown = prompt_view(random_attention(2, 2, 4, 20), 15, layers=2)
    for profile in ([[1.0] * 4], [[1.0] * 3] * 2, []):
        with pytest.raises(PolicyError, match="python -m harness"):
            over_snap(HeadKV(profile)).keep(shown)
    with pytest.raises(PolicyError, match="was not read"):
        over_snap(HeadKV("somewhere.json")).keep(shown)


@pytest.mark.parametrize(
    ("allocator", "sentence"),
    [
        ({"name": "pyramid", "beta": 0.5}, "use 1 or more"),
        ({"name": "pyramid", "schedule": "exakt"}, "not one of exact, public_code"),
        ({"name": "pyramid", "window": -1}, "0 or more tokens"),
        ({"name": "ada", "alpha": 2}, "between 0"),
        ({"name": "ada", "rounding": "up"}, "not one of largest_remainder, public_code"),
        ({"name": "ada", "base": "pyramyd"}, "not one of uniform, pyramid"),
        ({"name": "headkv", "beta": 0.9}, "use 1 or more"),
        ({"name": "headkv", "temp": 0}, "above 0"),
        ({"name": "hedkv"}, "Did you mean headkv?"),
    ],
)
def test_nonsense_is_refused(allocator, sentence):
    with pytest.raises(PolicyError) as refused:
        build({"name": "mine", "scorer": "snapkv", "schedule": {"prompt": "after_prompt"}, "allocator": allocator})
    assert sentence in str(refused.value)


def test_budgets_of_different_sizes_need_the_whole_prompt():
    with pytest.raises(PolicyError, match="after_prompt"):
        build({"name": "mine", "scorer": "snapkv", "allocator": "ada"})
