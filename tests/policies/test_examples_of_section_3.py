"""Numbers and invariants of policies.md 3.6 to 3.16 that follow from one view of the cache."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from given_attention import kept_per_head, prompt_view, random_attention
from views import kept, view

from policies import Policy, Protect, Schedule
from policies.ada import AdaKV
from policies.caote import CAOTE
from policies.gemfilter import TokenFilter
from policies.hashevict import HashEvict
from policies.keydiff import KeyDiff
from policies.pyramid import prefix_slots
from policies.snapkv import SnapKV, pool_neighbours
from policies.tova import TOVA

ONCE = Schedule(prompt="after_prompt", decode="never")


def test_a_prompt_shorter_than_the_window():
    """policies.md 3.6, T-23: with T < w all is protected, and the most recent stay."""
    policy = Policy("", SnapKV(16, 3, "max", "prefix"), protect=Protect(recent=16), schedule=ONCE)
    assert kept_per_head(policy, prompt_view(random_attention(2, 2, 9, 9), 5)) == [[4, 5, 6, 7, 8]] * 2


def test_one_slot_too_few_evicts_one_token_of_the_prefix():
    """policies.md 3.6, T-23: T = C + 1, and T = C as the boundary next to it."""
    policy = Policy("", SnapKV(3, 3, "max", "prefix"), protect=Protect(recent=3), schedule=ONCE)
    given = random_attention(2, 2, 3, 12)
    assert kept_per_head(policy, prompt_view(given, 12)) == [list(range(12))] * 2
    for own in kept_per_head(policy, prompt_view(given, 11)):
        assert len(own) == 11
        assert own[-3:] == [9, 10, 11]


def test_sum_and_mean_over_the_window_rank_alike():
    """policies.md 3.6: sum vs mean over the window does not change the ranking."""
    sums = torch.rand(30, generator=torch.Generator().manual_seed(0))
    policy = Policy("", SnapKV(5, 3))
    assert kept(policy, view(sums=sums.tolist(), budget=9)) == kept(policy, view(sums=(sums / 5).tolist(), budget=9))


@pytest.mark.parametrize("pool", ["avg", "avg_nopad", "max"])
def test_in_decode_the_window_is_the_current_row(pool):
    """policies.md 3.6, A-06: fewer rows in a short block, 1 in decode, which makes it TOVA and pooling."""
    shown = prompt_view(random_attention(2, 3, 1, 20), 9, phase="decode")
    smooth = pool_neighbours(TOVA().score(shown), shown.positions, 7, pool)
    assert torch.equal(SnapKV(32, 7, pool).score(shown), smooth)


@pytest.mark.parametrize(("pool", "commutes"), [("avg", True), ("avg_nopad", True), ("max", False)])
def test_pooling_and_the_group_mean(pool, commutes):
    """policies.md 3.6: for average pooling the two commute, for max pooling they do not."""
    rows = torch.rand(4, 30, generator=torch.Generator().manual_seed(1))
    scorer = SnapKV(1, 7, pool)
    after = scorer.score(view(sums=rows.mean(0).tolist()))
    before = torch.stack([scorer.score(view(sums=row.tolist())) for row in rows]).mean(0)
    assert torch.allclose(after, before, atol=1e-6) == commutes


@pytest.mark.parametrize(
    ("budget", "window", "percent", "whole"),
    [(128, 8, 4.6, 4.3), (128, 16, 12.5, 10.9), (128, 32, 15.1, 11.3), (256, 32, 5.1, 4.5), (512, 32, 1.4, None),
     (1024, 32, 1.3, None)],
)  # fmt: skip
def test_the_released_pyramid_allocates_too_much(budget, window, percent, whole):
    """policies.md 3.7, T-24: the excess of the floored step, without and with the window."""
    total = sum(prefix_slots(budget - window, 10**6, 32, 20, "public_code"))
    assert 100 * (total / (32 * (budget - window)) - 1) == pytest.approx(percent, abs=0.05)
    if whole is not None:
        assert 100 * ((total + 32 * window) / (32 * budget) - 1) == pytest.approx(whole, abs=0.05)


@pytest.mark.parametrize("schedule", ["exact", "public_code"])
def test_a_beta_of_one_is_flat(schedule):
    """policies.md 3.7, T-24: beta -> 1 gives cap_min = cap_max = base."""
    assert prefix_slots(8, 1000, 4, 1, schedule) == (8,) * 4


@pytest.mark.parametrize("layers", [1, 2, 5, 28, 32])
@pytest.mark.parametrize(("budget", "window"), [(10, 2), (64, 8), (128, 32), (40, 32)])
@pytest.mark.parametrize("extra", [1, 7, 100, 10_000])
def test_the_exact_pyramid_spends_its_budget(layers, budget, window, extra):
    """policies.md 3.7, T-24: sum = L * base for `exact`, within the prompt; short prompts clamp the first layer."""
    prefix = budget + extra - window
    slots = prefix_slots(budget - window, prefix, layers, 20, "exact")
    assert sum(slots) == layers * (budget - window)
    assert all(0 <= own <= prefix for own in slots)
    assert sum(prefix_slots(budget - window, prefix, layers, 20, "public_code")) >= sum(slots)


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_no_head_keeps_more_than_there_is(alpha):
    """policies.md 3.8, T-25: N_g <= P, also where one head owns all of the best scores."""
    given = random_attention(3, 1, 3, 12)
    given[0] *= 100
    scorer, allocator = SnapKV(3, 1, "none", "prefix"), AdaKV(window=3, alpha=alpha)
    policy = Policy("", scorer, allocator=allocator, protect=Protect(recent=3), schedule=ONCE)
    sizes = [len(own) for own in kept_per_head(policy, prompt_view(given, 11))]
    assert sizes[0] == 12 > max(sizes[1:])
    assert min(sizes) >= 3
    assert sum(sizes) == 33


def test_the_filter_sums_raw_products_of_all_query_heads():
    """policies.md 3.10, T-27: no scaling, no softmax; average pooling 5 with zeros beyond the ends."""
    torch.manual_seed(2)
    query, keys = torch.randn(6, 8), torch.randn(2, 30, 8)
    naive = torch.tensor([sum(float(query[h] @ keys[h // 3, j]) for h in range(6)) for j in range(30)])
    padded = F.pad(naive, (2, 2))
    pooled = torch.stack([padded[j : j + 5].sum() / 5 for j in range(30)])
    assert TokenFilter().choose(query, keys, 9) == sorted(pooled.topk(9).indices.tolist())
    assert TokenFilter().choose(query, keys, 30) == TokenFilter().choose(query, keys, 31) == list(range(30))


@pytest.mark.parametrize(("sign", "chosen"), [(1, [1, 2, 3, 4, 5, 6, 7]), (-1, [0, 1, 7, 8])])
def test_the_filter_damps_the_ends(sign, chosen):
    """policies.md 3.10: the ends become weaker if scores are positive, stronger if negative."""
    keys = torch.full((1, 9, 1), float(sign))
    assert TokenFilter().choose(torch.ones(1, 1), keys, len(chosen)) == chosen


def test_the_filter_layer_of_the_paper():
    """policies.md 3.10: 0-based 13 for the 32 layers of Llama-3.1-8B."""
    assert TokenFilter().layer_of(32) == TokenFilter(13).layer_of(32) == 13


def test_codes_of_the_example(monkeypatch):
    """policies.md 3.14, T-31: 1111; 1111, 0000, 1001, 0110; and the new key 0100."""
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    monkeypatch.setattr("policies.hashevict.projection_of", lambda *_: rows)
    vectors = torch.tensor([[1, 0.5], [2, 1], [-1, -0.2], [0.3, -1], [-0.5, 1], [-1, 0.4]])
    codes = HashEvict(bits=4).codes(vectors, 0).tolist()
    assert [f"{code:04b}"[::-1] for code in codes] == ["1111", "1111", "0000", "1001", "0110", "0100"]


def test_the_anchor_of_the_example():
    """policies.md 3.15, T-32: (.6946, .3218), seen through the dot products with the axes."""
    keys = [[1, 0], [0.9, 0.1], [1, 0.2], [-0.2, 1]]
    anchor = F.normalize(torch.tensor(keys), dim=-1).mean(0)
    assert anchor.tolist() == pytest.approx([0.6946, 0.3218], abs=5e-5)
    dots = KeyDiff(metric="dot").score(view(keys=keys)).flatten()
    assert torch.allclose(-dots, torch.tensor(keys) @ torch.tensor([0.6946, 0.3218]), atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_keydiff_minimises_its_objective(seed):
    """policies.md 3.15, T-32: the kept set has the least sum of cosines with the anchor, by brute force (Eq. 10)."""
    keys = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed)) + 0.4
    unit = F.normalize(keys, dim=-1)
    cost = (unit @ unit.mean(0)).tolist()
    for budget in (1, 3, 6):
        best = min(combinations(range(8), budget), key=lambda chosen: sum(cost[j] for j in chosen))
        assert kept(Policy("", KeyDiff()), view(keys=keys.tolist(), budget=budget)) == list(best)


def test_only_the_normalised_anchor_ignores_lengths():
    """policies.md 3.15, T-32: invariant to per-key positive rescaling with the normalised anchor only."""
    keys = torch.randn(15, 4, generator=torch.Generator().manual_seed(5)) + 0.5
    longer = keys * torch.linspace(0.1, 5, 15)[:, None]
    for anchor, ignores in (("mean_normed", True), ("median", True), ("pairwise", True), ("mean", False)):
        plain, scaled = (KeyDiff(anchor).score(view(keys=each.tolist())) for each in (keys, longer))
        assert torch.allclose(plain, scaled, atol=1e-5) == ignores


def test_zero_keys_score_zero():
    """policies.md 3.15: denominators are clamped, so a zero key is neither near nor far."""
    assert KeyDiff().score(view(keys=[[0, 0], [1, 0], [0, 1]])).flatten()[0] == 0
    assert KeyDiff().score(view(keys=[[0, 0]] * 3)).isfinite().all()


def test_what_is_kept_depends_on_the_blocks():
    """policies.md 3.15: nested blocks do not commute."""
    keys = torch.randn(30, 4, generator=torch.Generator().manual_seed(6))
    policy, held = Policy("", KeyDiff()), []
    for start in range(0, 30, 10):
        arrived = [*held, *range(start, start + 10)]
        held = kept(policy, view(keys=keys[arrived].tolist(), positions=arrived, budget=8))
    assert held != kept(policy, view(keys=keys.tolist(), budget=8))


def moved_output(mass: torch.Tensor, values: torch.Tensor, gone: set[int]) -> float:
    """How far the output moves when these leave and the rest is renormalised."""
    stay = [j for j in range(len(mass)) if j not in gone]
    return float((mass @ values - (mass[stay] / mass[stay].sum()) @ values[stay]).norm())


def test_removing_the_victim_of_the_example_moves_the_output_as_said():
    """policies.md 3.16, T-33: X = (.7, .5), and removing slot 2 really moves the output by .1458."""
    mass, values = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[1.0, 0], [0, 1], [1, 1]])
    assert (mass @ values).tolist() == pytest.approx([0.7, 0.5])
    shown = view(values=values.tolist(), sums=mass.tolist(), budget=2)
    assert kept(Policy("", TOVA(), CAOTE()), shown) == [0, 1]
    assert Policy("", TOVA(), CAOTE()).scores(shown)[0, 0, 2] == pytest.approx(moved_output(mass, values, {2}))


@pytest.mark.parametrize("gone", [{3}, {1, 2}, {0, 4, 7, 8}])
def test_the_joint_error_is_made_of_the_scores_of_single_slots(gone):
    """policies.md 3.16, T-33: |sum h (X - v)| / (1 - sum h) is the joint error; for one slot it is the score."""
    torch.manual_seed(7)
    mass, values = torch.rand(9).softmax(0), torch.randn(9, 5)
    joint = sum(mass[i] * (mass @ values - values[i]) for i in gone).norm() / (1 - sum(mass[i] for i in gone))
    assert float(joint) == pytest.approx(moved_output(mass, values, gone), rel=1e-4)
    scores = Policy("", TOVA(), CAOTE()).scores(view(sums=mass.tolist(), values=values.tolist())).flatten()
    if len(gone) == 1:
        assert float(scores[3]) == pytest.approx(float(joint), rel=1e-4)
    else:
        assert float(scores[list(gone)].sum()) != pytest.approx(float(joint), rel=1e-3)
