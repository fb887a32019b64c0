"""BUZZ in the reference (policies.md 3.17, T-34)."""

import math

import numpy as np
import pytest

from tests.reference import buzz, presets
from tests.reference.buzz import Buzz
from tests.reference.cases import kept, random_chunks, rng
from tests.reference.engine import simulate
from tests.reference.h2o import H2O
from tests.reference.window_sink import Dense


@pytest.mark.parametrize("s", range(3, 12))
def test_t34_theorem_holds_for_the_actual_recursion(s: int):
    for w in range(20, 400, 7):
        threshold = round(buzz.best_ratio(s) * w)
        limit = buzz.recursion(threshold, s, 60)[-1]
        assert abs(limit - w) <= 1


@pytest.mark.parametrize("threshold", [5, 6, 7, 11, 30])
@pytest.mark.parametrize("s", [3, 4, 5, 8])
def test_t34_one_sweep_gets_below_the_threshold_when_tokens_come_one_by_one(s: int, threshold: int):
    assert all(a <= threshold for a in buzz.recursion(threshold, s, 60))


def test_t34_lengths_oscillate_between_a_and_the_threshold():
    chunks = random_chunks(rng(55), [6] + [1] * 60, H=2, G=1)
    steps = simulate(Buzz(2, 4, 3, 9), chunks, None, prompt_chunks=1)
    expected, middle = iter(buzz.recursion(9, 3, 20)), 0
    for step in steps[1:]:
        assert len(step.kept[0]) == len(step.kept[1]) <= 2 + 4 + 9
        middle += 1
        if step.evicted[0]:
            middle = next(expected)
        assert len(step.kept[0]) == 6 + middle


def test_t34_every_hive_has_one_survivor_and_the_first_winner_is_permanent():
    tokens = list(range(17))
    score = dict(enumerate(rng(56).random(17)))
    winners = buzz.local_max(tokens, score, 5)
    assert [t // 5 for t in winners] == [0, 1, 2, 3]
    for t in winners:
        assert score[t] == max(score[u] for u in tokens if u // 5 == t // 5)
    old = winners
    for _ in range(5):
        old = buzz.interval(old, 3)
    assert old == winners[:1]
    # Rank r survives exactly when s-hat divides it, and moves to r / s-hat.
    assert buzz.interval(list(range(10)), 3) == [0, 3, 6, 9]


def test_t34_a_tie_inside_a_hive_keeps_the_earliest():
    assert buzz.local_max([0, 1, 2, 3, 4], dict.fromkeys(range(5), 1.0), 3) == [0, 3]


@pytest.mark.parametrize("total", [20, 50, 120])
def test_t34_prompt_loop_ends_within_the_threshold_and_code_may_not(total: int):
    chunks = random_chunks(rng(57), [total, 1, 1, 1], H=2, G=1)
    loop = simulate(Buzz(2, 4, 3, 9), chunks, None, prompt_chunks=1)
    assert all(len(step.kept[0]) <= 15 for step in loop)
    code = simulate(Buzz(2, 4, 3, 9, prefill="code"), chunks, None, prompt_chunks=1)
    middle = total - 6
    assert len(code[0].kept[0]) == 6 + -(-middle // 3)
    if total == 120:
        # 38 > 9: the released behaviour needs further sweeps, one per decode step.
        assert [len(step.kept[0]) for step in code] == [44, 26, 17, 13]


def test_t34_accumulates_like_h2o():
    chunks = random_chunks(rng(82), [12, 1, 1, 1], G=2)
    a = simulate(Buzz(2, 4, 3, 30), chunks, None, prompt_chunks=1)
    b = simulate(H2O(), chunks, None, prompt_chunks=1)
    assert [[head["acc"] for head in step.state] for step in a] == [[head["acc"] for head in step.state] for step in b]


def test_t34_stream_sweeps_after_every_block():
    chunks = random_chunks(rng(58), [8] * 5 + [1] * 4, H=2, G=1)
    steps = simulate(Buzz(2, 4, 3, 9, prefill="stream"), chunks, None, prompt_chunks=5)
    lengths, old, middle = [], 0, 0
    for step in steps:
        middle = max(0, len(step.seen[0]) - 6)
        if middle > 9:
            old = middle = -(-old // 2) + -(-(middle - old) // 3)
        lengths.append(min(len(step.seen[0]), 6 + middle))
    assert [len(step.kept[0]) for step in steps] == lengths


def test_t34_variants():
    tokens, score = list(range(10)), {t: float(t) for t in range(10)}
    assert buzz.sweep([], tokens, score, 5, "interval") == [0, 5]
    assert buzz.sweep([], tokens, score, 5) == [4, 9]
    assert buzz.sweep(tokens, [], score, 5) == [0, 3, 6, 9]
    assert buzz.sweep(tokens, [], score, 5, swap_strides=True) == [0, 5]
    assert buzz.sweep([], tokens, score, 5, swap_strides=True) == [2, 5, 8, 9]


def test_t34_no_max_reads_no_scores():
    q, k, v = zip(*random_chunks(rng(59), [30, 1, 1]), strict=True)
    other = [(x + 3 * np.sign(x), y, z) for x, y, z in zip(q, k, v, strict=True)]
    policy = presets.make("buzz/no_max", sink=2, window=4, stride=3, threshold=9)
    a = simulate(policy, list(zip(q, k, v, strict=True)), None, prompt_chunks=1)
    b = simulate(policy, other, None, prompt_chunks=1)
    assert kept(a) == kept(b)


def test_t34_log_n():
    assert buzz.log_factor(512) == pytest.approx(1)
    assert buzz.log_factor(1) == 0
    chunks = random_chunks(rng(60), [12, 1], H=1, G=1)
    logn = simulate(Buzz(2, 4, 3, 20, logn=True), chunks, None, prompt_chunks=1)
    for n, step in zip((12, 13), logn, strict=True):
        scaled = simulate(Dense(), chunks, None, prompt_chunks=1, scaling=0.5 * math.log(n) / math.log(512))
        np.testing.assert_array_equal(step.output, scaled[n - 12].output)


def test_t34_invalid_parameters_raise():
    with pytest.raises(ValueError, match="stride"):
        Buzz(4, 10, 2, 20)
    with pytest.raises(ValueError, match="threshold"):
        Buzz(4, 10, 5, 4)
    with pytest.raises(ValueError, match="both"):
        Buzz(4, window=10)


@pytest.mark.parametrize("cache_size", [50, 100, 200, 300, 1024])
def test_t34_peak_mapping_never_holds_more(cache_size: int):
    window, threshold = buzz.sizes(cache_size, "peak")
    assert buzz.lengths(4, window, 5, threshold)[2] == cache_size
    assert threshold / window == pytest.approx(float(buzz.best_ratio(5)), rel=0.2)
    for kind, index in (("post", 0), ("mean", 1)):
        w, t = buzz.sizes(cache_size, kind)
        assert buzz.lengths(4, w, 5, t)[index] == pytest.approx(cache_size, abs=3)
