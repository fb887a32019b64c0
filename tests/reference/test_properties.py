"""Random shapes and hard inputs (policies.md section 7, last paragraph), for every policy at toy size.

Lengths stay below 50 tokens instead of 200: the loops are slow, and every rule has set in by then.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.cases import CASES, Case, random_chunks
from tests.reference.engine import Chunk, simulate
from tests.reference.headkv import uniform_profile

KINDS = ("normal", "ties", "one-hot", "zero keys", "equal values")


def hard_chunks(seed: int, sizes: list[int], group: int, kind: str) -> list[Chunk]:
    chunks = random_chunks(np.random.default_rng(seed), sizes, H=2, G=group, D=4)
    if kind == "ties":
        return [(np.round(q), np.round(k), np.round(v)) for q, k, v in chunks]
    if kind == "one-hot":
        return [(1e4 * q, k, v) for q, k, v in chunks]
    if kind == "zero keys":
        return [(q, np.zeros_like(k), v) for q, k, v in chunks]
    if kind == "equal values":
        return [(q, k, np.ones_like(v)) for q, k, v in chunks]
    return chunks


@st.composite
def settings_of_a_run(draw: st.DrawFn) -> tuple[int, int, int, int, int, str]:
    total = draw(st.integers(1, 40))
    return (
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from((1, 2, 4, 7))),
        total,
        draw(st.integers(1, total)),
        draw(st.integers(1, total + 3)),
        draw(st.sampled_from(KINDS)),
    )


@pytest.mark.parametrize(
    ("case", "mode"), [(c, m) for c in CASES for m in c.modes], ids=[f"{c.name}-{m}" for c in CASES for m in c.modes]
)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(drawn=settings_of_a_run())
def test_bounds_order_and_nesting(case: Case, mode: str, drawn: tuple[int, int, int, int, int, str]):
    seed, group, total, block, budget, kind = drawn
    sizes = [total] if mode == "once" else [min(block, total - start) for start in range(0, total, block)]
    decode = 4
    chunks = hard_chunks(seed, sizes + [1] * decode, group, kind)
    policy = case.policy(**({"profile": uniform_profile(1, 2 * group)} if case.name == "headkv" else {}))
    steps = simulate(policy, chunks, budget, prompt_chunks=len(sizes))
    before: list[set[int]] = [set(), set()]
    read = 0
    for c, (step, m) in enumerate(zip(steps, sizes + [1] * decode, strict=True)):
        prompt = c < len(sizes)
        compressed = policy.prefill_evict == "after_each_block" or not prompt or c == len(sizes) - 1
        assert np.isfinite(step.output).all()
        for g, own in enumerate(step.kept):
            assert own == sorted(set(own))
            assert set(own) <= before[g] | set(range(read, read + m))
            if case.exact_budget and compressed:
                assert len(own) == min(budget, read + m)
            if case.exact_budget and budget >= total + decode:
                assert own == list(range(read + m))
            before[g] = set(own)
        read += m
    if kind == "equal values":
        # Softmax weights sum to 1 whatever was evicted. FastGen may show a head nothing, which gives 0.
        ones = np.concatenate([step.output.ravel() for step in steps])
        assert np.allclose(ones, 1) or (case.name == "fastgen" and set(np.round(ones, 9)) <= {0.0, 1.0})
