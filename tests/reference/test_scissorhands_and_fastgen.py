"""Scissorhands and FastGen in the reference (policies.md 3.11 and 3.12, T-28 and T-29)."""

from itertools import pairwise

import numpy as np
import pytest

from tests.reference import fastgen, presets
from tests.reference.cases import FASTGEN, TOKENS, random_chunks, rng, scripted
from tests.reference.engine import Step, simulate
from tests.reference.fastgen import FastGen
from tests.reference.scissorhands import Scissorhands, bits
from tests.reference.window_sink import Dense

# T-28: Scissorhands.


def test_t28_bits_at_the_uniform_level_count():
    assert bits(np.array([0.25, 0.2499, 0.5]), 4) == [True, False, True]


def scissor_rows(total: int, rows: list[list[float]]) -> list[np.ndarray]:
    """A prompt of `total` tokens with uniform attention, then the given decode rows."""
    prompt = np.array([[[1 / (i + 1) if j <= i else 0.0 for j in range(total)] for i in range(total)]])
    return [prompt, *(np.array([[row]]) for row in rows)]


def test_t28_ring_wraps_and_the_score_is_the_mean_of_the_last_history_bits():
    rows = [[0.3, 0.7 - 0.01 * t, *[0.01] * t] for t in range(1, 6)]
    policy = Scissorhands(history=3, sink=0, recent=0, prompt_step="none", prefill_evict="none", decode_evict="never")
    steps = simulate(policy, scripted(scissor_rows(2, rows)), None, prompt_chunks=1, scaling=1.0)
    for i, step in enumerate(steps):
        state = step.state[0]
        assert set(state["ring"][0]) == set(range(min(i + 1, 3)))
        assert state["count"][0] == i + 1
    # Slot 0 holds 0.3 of every row. Prompt: uniform level met. Decode: 0.3 < 1/3, then >= 1/4, 1/5, ...
    level = [[s.state[0]["ring"][0][j] for j in sorted(s.state[0]["ring"][0])] for s in steps]
    assert level[0] == [True]
    assert level[2] == [True, False, True]
    assert level[3] == [True, False, True]  # index 3 mod 3 = 0 overwrote the prompt's bit
    assert level[4] == [True, True, True]


def test_t28_history_one_evicts_the_oldest_token_below_uniform():
    chunks = random_chunks(rng(26), [10] + [1] * 8, H=2, G=2)
    policy = Scissorhands(history=1, sink=0, recent=0, prompt_step="none")
    steps = simulate(policy, chunks, 10, prompt_chunks=1)
    for before, step in pairwise(steps):
        for g in range(2):
            low = [p for p in before.kept[g] if not any(before.state[g]["ring"][p].values())]
            assert step.evicted[g] == [min(low)]


def test_t28_protected_band_and_one_eviction_per_step():
    chunks = random_chunks(rng(27), [40] + [1] * 12)
    steps = simulate(presets.make("scissorhands/hashevict"), chunks, 24, prompt_chunks=1)
    for i, step in enumerate(steps):
        t = 39 + i
        assert step.peak == (40 if i == 0 else 24)
        for g in range(2):
            assert len(step.kept[g]) == 24
            assert len(step.evicted[g]) == (16 if i == 0 else 1)
            assert set(range(4)) | set(range(t - 10, t + 1)) <= set(step.kept[g])


def test_t28_a_new_occupant_starts_empty():
    chunks = random_chunks(rng(28), [12] + [1] * 5)
    steps = simulate(presets.make("scissorhands/hashevict", sink=1, recent=2), chunks, 8, prompt_chunks=1)
    for i, step in enumerate(steps[1:], start=1):
        for g in range(2):
            assert step.state[g]["count"][11 + i] == 1
            assert step.state[g]["ring"][11 + i].keys() == {i}


# T-29: FastGen.


def causal_attention(seed: int, total: int) -> np.ndarray:
    A = np.tril(rng(seed).random((total, total)) ** 4)
    return A / A.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("window", [0, 1, 4, 20])
def test_t29_mass_identity(window: int):
    A, static = causal_attention(29, 17), {0, 1, 5, 11}
    direct = fastgen.recovered_mass(A, static, window)
    via_sums = fastgen.recovered_mass_from_sums(A.sum(axis=0), fastgen.band_sums(A, window), static, 17)
    masked = np.mean([sum(A[i, j] for j in range(17) if j in static or 0 <= i - j < window) for i in range(17)])
    assert direct == pytest.approx(via_sums)
    assert direct == pytest.approx(masked)


def fast(**overrides) -> FastGen:
    return FastGen(**{**FASTGEN, **overrides})


def test_t29_choice_is_monotone_in_recovery():
    chunk = random_chunks(rng(30), [30], H=4)[0]
    last = [1, 1, 1, 1]
    for recovery in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99, 1.1):
        policy = fast(recovery=recovery)
        simulate(policy, [chunk], None, prompt_chunks=1)
        assert all(a <= b for a, b in zip(last, policy.chosen, strict=True))
        last = policy.chosen
        if recovery == 0.0:
            assert policy.chosen == [1] * 4
    assert policy.chosen == [5] * 4


def test_t29_full_heads_equal_dense():
    chunks = random_chunks(rng(31), [20, 1, 1])
    a = simulate(fast(recovery=1.1), chunks, None, prompt_chunks=1)
    b = simulate(Dense(), chunks, None, prompt_chunks=1)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x.output, y.output)


def forced(number: int, **overrides) -> FastGen:
    """A FastGen whose heads all use one hybrid policy."""

    class Forced(FastGen):
        def masks(self, columns, length):
            masks = super().masks(columns, length)
            return [(set(), 0)] * (number - 1) + masks[number - 1 :]

    return Forced(**{**FASTGEN, "recovery": 1e-9, "sink": 2, **overrides})


T29_PROMPT = 30


def t29_run(number: int, decode: int = 20, **overrides) -> tuple[FastGen, list[Step]]:
    policy = forced(number, **overrides)
    chunks = random_chunks(rng(32), [T29_PROMPT] + [1] * decode)
    steps = simulate(policy, chunks, None, prompt_chunks=1)
    assert policy.chosen == [number] * 2
    return policy, steps


SPECIAL = {p for p in range(T29_PROMPT) if TOKENS[p] == 0}
PUNCT = [p for p, token in enumerate(TOKENS) if token in {1, 2}]


def test_t29_special_heads_keep_special_tokens_only():
    _, steps = t29_run(1)
    static = SPECIAL | {0, 1}
    budget = 2 + len(SPECIAL)
    assert steps[0].kept == [sorted(static)] * 2
    # Places are left only because a token may count both as global and as special.
    free = budget - len(static)
    assert steps[-1].kept == [sorted(static | set(range(T29_PROMPT, T29_PROMPT + free)))] * 2


def test_t29_punctuation_grows_with_the_text():
    _, steps = t29_run(2)
    punct = {p for p in PUNCT if p < T29_PROMPT}
    static = SPECIAL | punct | {0, 1}
    free = 2 + len(SPECIAL) + len(punct) - len(static)
    assert steps[0].kept == [sorted(static)] * 2
    for i, step in enumerate(steps):
        t = T29_PROMPT - 1 + i
        new = list(range(T29_PROMPT, t + 1))
        ordinary = [p for p in new if p not in PUNCT][:free]
        assert step.kept == [sorted(static | set(ordinary) | (set(new) & set(PUNCT)))] * 2
    assert any(p >= T29_PROMPT for p in steps[-1].kept[0] if p in PUNCT)


def test_t29_self_visibility():
    """A-19: a token that is not inserted is invisible to its own step, unless self_visible."""
    for visible in (False, True):
        _, steps = t29_run(1, decode=8, self_visible=visible)
        for i, step in enumerate(steps[1:]):
            t = T29_PROMPT + i
            for g in range(2):
                assert (t in step.seen[g]) == (visible or t in step.kept[g])
                assert set(step.seen[g]) - {t} <= set(step.kept[g])


@pytest.mark.parametrize("number", [3, 4])
def test_t29_heavy_heads_hold_their_budget(number: int):
    policy, steps = t29_run(number, max_len=40)
    shares = {3: 12, 4: 12 + 12}[number]
    for i, step in enumerate(steps[1:]):
        t = T29_PROMPT + i
        budget = 2 + len(SPECIAL) + len([p for p in PUNCT if p <= t]) + shares
        for g in range(2):
            assert policy.head_budget(g, t + 1) == budget
            assert len(step.kept[g]) <= budget
            assert SPECIAL | {0, 1} | {p for p in PUNCT if p <= t} <= set(step.kept[g])
            assert t in step.kept[g]
            if number == 4:
                assert set(range(t - 11, t + 1)) <= set(step.kept[g])


@pytest.mark.parametrize("number", [3, 4])
def test_t29_prompt_mask_is_the_last_rows(number: int):
    """Heavy hitters: ceil(0.3 * max_len) among what is left; window: floor(0.3 * max_len), own token included."""
    _, steps = t29_run(number, decode=1, max_len=41)
    static = SPECIAL | {0, 1} | {p for p in PUNCT if p < T29_PROMPT}
    window = set(range(T29_PROMPT - 12, T29_PROMPT)) if number == 4 else set()
    free = T29_PROMPT - len(static | window)
    for own in steps[0].kept:
        assert static | window <= set(own)
        assert len(own) == len(static | window) + min(13, free)


def test_t29_sizes_of_windows_and_shares():
    assert [fastgen.window_size(0.3, n) for n in (1, 3, 9, 10, 100)] == [1, 1, 2, 3, 30]
    assert [fastgen.decode_share(0.3, n) for n in (5, 9, 10, 15, 25)] == [2, 3, 3, 4, 8]
    columns = np.array([4.0, 3.0, 2.0, 1.5, 1.0])
    # Divided by the 5, 4, 3, 2, 1 queries that see them: 0.8, 0.75, 0.67, 0.75, 1.
    assert fastgen.heavy_hitters(columns, {4}, 2) == [0, 3]


def test_t29_decode_evicts_the_lowest_average_outside_the_protected_sets():
    """The window of W slots counts the incoming token: positions t - W + 1 ... t - 1 are protected among the cached."""
    _, steps = t29_run(4, max_len=20)
    for before, step in pairwise(steps):
        for g in range(2):
            t = step.seen[g][-1]
            if t in PUNCT or not step.evicted[g]:
                continue
            held = SPECIAL | set(PUNCT) | {0, 1} | set(range(t - 5, t))  # W = round(0.3 * 20) = 6
            state = before.state[g]
            average = {p: sum(state["ring"][p].values()) / state["count"][p] for p in before.kept[g]}
            free = [p for p in before.kept[g] if p not in held]
            assert step.evicted[g] == [min(free, key=lambda p: (average[p], p))]
    assert any(step.evicted[0] for step in steps[1:])


def test_t29_heads_may_differ_in_length():
    """Head 0 attends to its own token only, so no static set helps it; head 1 attends to token 0."""
    T = 20
    rows = np.zeros((2, T, T))
    for i in range(T):
        rows[0, i, i] = 1.0
        rows[1, i, 0] = 1.0
    q, k, v = scripted([rows], H=2)[0]
    policy = fast(recovery=0.9, sink=1)
    step = simulate(policy, [(q, k, v)], None, prompt_chunks=1, scaling=1.0)[0]
    assert policy.chosen == [4, 1]
    assert len(step.kept[0]) > len(step.kept[1])
