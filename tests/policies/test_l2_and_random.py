"""L2 (policies.md 3.13, T-30) and the random floor."""

from __future__ import annotations

from dataclasses import replace

import torch
from views import kept, view

from policies import Policy, Schedule
from policies.baselines import Random
from policies.l2 import L2
from policies.selection import SkipLayers


def test_3_13_the_smallest_norms_stay_and_rotations_do_not_matter():
    """policies.md 3.13, T-30."""
    torch.manual_seed(0)
    keys = torch.randn(30, 8)
    turn = torch.linalg.qr(torch.randn(8, 8)).Q
    smallest = sorted(keys.norm(dim=-1).argsort()[:9].tolist())
    assert kept(Policy("", L2()), view(keys=keys.tolist(), budget=9)) == smallest
    assert kept(Policy("", L2()), view(keys=(keys @ turn).tolist(), budget=9)) == smallest


def test_3_13_norms_are_fp32_whatever_the_model_is():
    """policies.md 3.13, T-30."""
    shown = view(keys=[[1.0, 0.0], [1.0, 0.0625]])
    scores = L2().score(replace(shown, keys=shown.keys.bfloat16())).flatten()
    assert scores.dtype == torch.float32
    assert scores[0] > scores[1]  # 1.00195 is 1 in bf16


def test_3_13_skipped_layers_stay_full():
    """policies.md 3.13, T-30."""
    policy = Policy("", L2(), schedule=Schedule("after_prompt"), allocator=SkipLayers((0, 1)))
    shown = view(keys=torch.randn(12, 4).tolist(), budget=5)
    assert [len(kept(policy, replace(shown, layer=layer))) for layer in range(4)] == [12, 12, 5, 5]


def random_scores(positions, heads=3, layer=0, seed=0):
    shown = view(len(positions), positions=positions)
    wide = {name: getattr(shown, name).repeat(1, heads, *[1] * (getattr(shown, name).dim() - 2)) for name in
            ("keys", "values", "positions")}  # fmt: skip
    return Random(seed).score(replace(shown, layer=layer, **wide))[0]


def test_a_token_keeps_its_number_wherever_it_lies():
    straight = random_scores(list(range(50)))
    torch.manual_seed(1)
    order = torch.randperm(50)
    assert torch.equal(random_scores(order.tolist()), straight[:, order])


def test_seeds_layers_heads_and_positions_draw_anew_and_evenly():
    draws = [random_scores(list(range(2000)), layer=layer, seed=seed).flatten() for seed in (0, 1) for layer in (0, 1)]
    numbers = torch.cat(draws)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert len(set(numbers.tolist())) > 0.99 * len(numbers)
    counts = torch.histc(numbers, bins=20, min=0, max=1) / len(numbers)
    assert (counts - 0.05).abs().max() < 0.005  # three standard errors are 0.0042
    table = torch.stack(draws)
    assert (torch.corrcoef(table) - torch.eye(4)).abs().max() < 0.05


def test_block_size_does_not_change_the_survivors():
    """Best of the best: what survives in pieces is what survives at once."""
    policy = Policy("", Random(seed=5))
    whole = kept(policy, view(60, budget=10))
    held: list[int] = []
    for start in range(0, 60, 7):
        arrived = held + list(range(start, min(60, start + 7)))
        held = kept(policy, view(positions=arrived, budget=10))
    assert held == whole
