"""SnapKV's two readings that need more than the chunk's column sums (policies.md 3.6): a window of queries that is
carried over chunks, and pooling before the mean over the query group. Fast = slow reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from raw import run_layer
from reference.engine import simulate
from reference.presets import make
from tiny import prompt, tiny_model

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import Policy, PolicyError, Protect
from policies.snapkv import SnapKV

ROUNDING = 2e-5  # of scores of size one, as in test_fast_equals_reference

VARIANTS = {
    "carry": {"window_source": "carry"},
    "before_mean max": {"pool_order": "before_mean", "pool": "max"},
    "carry, before_mean": {"window_source": "carry", "pool_order": "before_mean", "pool": "max"},
}


def compare(parameters: dict[str, str], sizes: list[int], decode: int, budget: int, group: int, seed: int) -> float:
    """The share of chunks that were compared before a near tie; asserts that survivors agree until then."""
    options = {"window": 5, "kernel": 3, **parameters}
    rng = np.random.default_rng(seed)
    chunks = [
        tuple(rng.normal(size=(heads, m, 8)).astype(np.float32) for heads in (2 * group, 2, 2))
        for m in sizes + [1] * decode
    ]
    policy = Policy("", SnapKV(**options), protect=Protect(recent=5))
    slow = simulate(make("snapkv/keydiff", pool_over="all", **options), chunks, budget, prompt_chunks=len(sizes))
    fast = run_layer(policy, [tuple(map(torch.from_numpy, c)) for c in chunks], budget, len(sizes))
    for number, (expected, got) in enumerate(zip(slow, fast, strict=True)):
        if expected.kept != got.kept:
            differing = [g for g, (a, b) in enumerate(zip(expected.kept, got.kept, strict=True)) if a != b]
            assert all(expected.margin[g] < ROUNDING for g in differing), (number, expected.margin)
            return number / len(slow)
    return 1.0


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("group", [1, 2, 4])
def test_3_6_same_survivors_as_the_reference(name, group):
    shares = [
        compare(VARIANTS[name], sizes, decode, budget, group, seed)
        for seed, (sizes, decode, budget) in enumerate(
            [([9, 9, 9, 4], 12, 12), ([3, 3, 3, 1], 20, 6), ([2] * 9, 5, 7), ([16, 16, 5], 50, 20), ([1] * 12, 9, 5)]
        )
    ]
    assert np.mean(shares) > 0.9


def test_3_6_the_variants_choose_differently():
    """Otherwise the comparison above would say nothing about them."""
    rng = np.random.default_rng(3)
    chunks = [tuple(torch.from_numpy(rng.normal(size=(h, m, 8)).astype("f4")) for h in (4, 2, 2)) for m in [3] * 12]

    def kept(**parameters: str) -> list[list[list[int]]]:
        scorer = SnapKV(**{"window": 5, "kernel": 3, "pool": "max", **parameters})
        return [step.kept for step in run_layer(Policy("", scorer, protect=Protect(recent=5)), chunks, 9, 12)]

    assert len({str(kept()), *(str(kept(**v)) for v in VARIANTS.values())}) == 4


def test_carried_queries_are_counted_as_state():
    """5.2: w queries of every query head, and the places of their tokens, in every layer."""
    model = tiny_model("llama")
    policy = Policy("carry", SnapKV(window=8, window_source="carry"), protect=Protect(recent=8))
    (outcome,) = Engine(model).generate([Request(prompt(40), policy, 16, 3)], Prompting("blocked", 8))
    config = model.config
    queries = 8 * config.num_attention_heads * config.head_dim * 4
    assert outcome.ledger.state_bytes == config.num_hidden_layers * (queries + 8 * 8)


def test_rows_do_not_disturb_each_other_while_they_carry():
    """A row that waits in a batch keeps its window: batch = single."""
    engine = Engine(tiny_model("llama"))
    policy = Policy("carry", SnapKV(window=8, window_source="carry"), protect=Protect(recent=8))
    rows = [Request(prompt(length, 1), policy, 16, 9) for length in (23, 60, 41)]
    feed = Prompting("blocked", 8)
    assert [o.tokens for o in engine.generate(rows, feed)] == [engine.generate([r], feed)[0].tokens for r in rows]


def test_carry_needs_absolute_positions():
    with pytest.raises(PolicyError, match="rotation"):
        Policy("carry", SnapKV(window_source="carry"), rope="cache")


@pytest.mark.parametrize("field", ["pool_order", "window_source"])
def test_unknown_readings_are_named(field):
    with pytest.raises(PolicyError, match=field):
        SnapKV(**{field: "sideways"})
