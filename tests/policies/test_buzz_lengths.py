"""How long BUZZ's cache gets, and who survives a sweep (policies.md 3.17)."""

from __future__ import annotations

import math

import pytest
import torch
from test_buzz import Cache

from policies.buzz import Buzz, best_ratio, small_stride


def recursion(threshold: int, stride: int, sweeps: int) -> list[int]:
    """a_1 = ceil((T + 1) / s), a_n = ceil(a / s_hat) + ceil((T + 1 - a) / s)."""
    lengths = [math.ceil((threshold + 1) / stride)]
    for _ in range(sweeps - 1):
        old = lengths[-1]
        lengths.append(math.ceil(old / small_stride(stride)) + math.ceil((threshold + 1 - old) / stride))
    return lengths


def swept_middles(sinks: int, window: int, stride: int, threshold: int, sweeps: int) -> list[int]:
    """The middle after each sweep, with one token per step where it matters: at the threshold."""
    cache = Cache(Buzz(sinks, window, stride, threshold), lambda p: (7919 * p.long() % 97).float())
    ends = sinks + window
    cache.feed(ends, "prompt")
    middles = []
    for _ in range(sweeps):
        room = ends + threshold - len(cache.tokens)
        assert room == 0 or not cache.feed(room)  # the middle is now as large as it may be
        assert cache.feed(1)
        middles.append(len(cache.tokens) - ends)
    return middles


@pytest.mark.parametrize(
    ("stride", "threshold"), [(3, 6), (3, 9), (4, 13), (5, 5), (5, 40), (6, 31), (8, 64), (11, 90)]
)
def test_middles_follow_the_recursion(stride, threshold):
    """policies.md 3.17, T-34: a_1 = ceil((T_thr+1)/s), a_n = ceil(a_{n-1}/s_hat) + ceil((T_thr+1-a_{n-1})/s)."""
    assert swept_middles(2, 3, stride, threshold, 12) == recursion(threshold, stride, 12)


@pytest.mark.parametrize("threshold", [5, 6, 7, 11, 30])
@pytest.mark.parametrize("stride", [3, 4, 5, 8])
def test_one_sweep_gets_below_the_threshold(stride, threshold):
    """policies.md 3.17: middle <= T_thr after every step, for s >= 3 and T_thr >= 5."""
    cache = Cache(Buzz(1, 2, stride, threshold), lambda p: (7919 * p.long() % 97).float())
    for _ in range(100):
        cache.feed(1)
        assert len(cache.tokens) <= 3 + threshold


def test_the_ratios_of_the_theorem():
    """policies.md 3.17, T-34: 1, 2.5, 3, 4.33, 5, 6.25, 7, 8.2 for s = 2 ... 9."""
    expected = [1, 2.5, 3, 4.33, 5, 6.25, 7, 8.2]
    assert [float(best_ratio(stride)) for stride in range(2, 10)] == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize("stride", range(3, 12))
def test_the_ratio_makes_the_middle_as_large_as_the_window(stride):
    """policies.md 3.17, T-34: the limit of a is within 1 of w for T_thr = round(ratio * w), 20 <= w < 400."""
    for window in range(20, 400):
        assert abs(recursion(round(best_ratio(stride) * window), stride, 60)[-1] - window) <= 1


@pytest.mark.parametrize(("stride", "window"), [(3, 50), (5, 36), (6, 40), (9, 25)])
def test_the_cache_settles_at_the_size_of_the_window(stride, window):
    """policies.md 3.17, T-34: the theorem on the cache itself."""
    threshold = round(best_ratio(stride) * window)
    assert abs(swept_middles(4, window, stride, threshold, 25)[-1] - window) <= 1


@pytest.mark.parametrize(
    ("sinks", "window", "stride", "threshold", "post", "mean", "peak"),
    [(4, 160, 5, 400, 257, 410.5, 564), (4, 160, 5, 693, 325, 591.0, 857), (4, 56, 5, 240, 116, 208.0, 300),
     (4, 36, 5, 160, 78, 139.0, 200)],
)  # fmt: skip
def test_the_table_of_lengths(sinks, window, stride, threshold, post, mean, peak):
    """policies.md 3.17: length after a sweep, mean and peak, once it is stationary."""
    ends = sinks + window
    middle = swept_middles(sinks, window, stride, threshold, 30)[-1]
    assert ends + middle == post
    assert ends + threshold == peak
    cycle = range(ends + middle, ends + threshold + 1)
    assert sum(cycle) / len(cycle) == mean


def test_the_printed_equation_is_a_factor_two_off():
    """policies.md 3.17: with s = 5 and T = 400 the cache stays at 93, not at the 148 of Eq. 10 as printed."""
    printed = floored = 80
    for _ in range(60):
        printed, floored = 2 * printed // 3 + (400 - printed) // 5, floored // 3 + (400 - floored) // 5
    assert (printed, floored, swept_middles(4, 160, 5, 400, 30)[-1]) == (148, 91, 93)


def test_every_hive_has_one_survivor():
    """policies.md 3.17, T-34: of consecutive segments of s new tokens, the last one short, the best each."""
    score = torch.rand(17, generator=torch.Generator().manual_seed(0))
    cache = Cache(Buzz(0, 0, 5, 16, prefill="single"), lambda p: score[p.long()])
    cache.feed(17, "prompt")
    assert cache.tokens == [start + int(score[start : start + 5].argmax()) for start in range(0, 17, 5)]


def test_a_tie_inside_a_hive_keeps_the_earliest():
    """policies.md 3.17: plain argmax, the one exception to rule 1.3-4."""
    cache = Cache(Buzz(0, 0, 3, 5, prefill="single"), lambda p: torch.ones(p.shape))
    cache.feed(6, "prompt")
    assert cache.tokens == [0, 3]


def test_the_first_winner_is_permanent_and_ranks_shrink():
    """policies.md 3.17: rank 0 of old always stays; rank r survives iff s_hat divides r, and moves to r / s_hat."""
    cache = Cache(Buzz(0, 0, 5, 30), lambda p: p.float())
    cache.feed(31)
    winners = cache.tokens
    assert winners == [4, 9, 14, 19, 24, 29, 30]
    for sweep in range(1, 4):
        cache.feed(30 - len(cache.tokens))
        cache.feed(1)
        survivors = [token for token in cache.tokens if token <= 30]
        assert survivors == winners[:: 3**sweep]
    assert survivors == [4]


def test_interval_sampling_reads_no_scores():
    """policies.md 3.17, T-34: `no_max` uses no scores, so that other scores keep the same tokens."""
    kept = {}
    for rule in ("interval", "local_max"):
        for factor in (1, 7919):
            cache = Cache(Buzz(1, 2, 4, 9, new_rule=rule), lambda p, factor=factor: (factor * p.long() % 97).float())
            cache.feed(12, "prompt")
            for _ in range(40):
                cache.feed(1)
            kept[rule, factor] = cache.tokens
    assert kept["interval", 1] == kept["interval", 7919]
    assert kept["local_max", 1] != kept["local_max", 7919]


@pytest.mark.parametrize("budget", [50, 100, 200, 300, 1024])
@pytest.mark.parametrize(("kind", "place"), [("peak", 2), ("mean", 1), ("post", 0)])
def test_sizes_hit_what_they_aim_at(budget, kind, place):
    """policies.md 3.17: the three mappings of a cache size C give its peak exactly, its mean and post nearly."""
    window, threshold = Buzz(size_kind=kind).sizes(budget)
    middle = recursion(threshold, 5, 60)[-1]
    post, peak = 4 + window + middle, 4 + window + threshold
    reached = (post, (post + peak) / 2, peak)[place]
    assert reached == pytest.approx(budget, abs=0 if kind == "peak" else 3)
    assert kind != "peak" or threshold / window == pytest.approx(float(best_ratio(5)), rel=0.2)
