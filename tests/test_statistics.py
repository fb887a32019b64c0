"""Intervals on synthetic data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.analysis.statistics import (
    Interval,
    _t_quantile,
    mean_interval,
    paired_difference,
    perplexity_interval,
    wilson,
)

TRIALS = 400
# 400 trials at a true coverage of 0.95 have a standard error of 0.011. The lower bound is three of them below
# nominal; the upper one leaves room for methods that are cautious by design.
NOMINAL = (0.917, 0.99)


def width(interval: Interval) -> float:
    return interval.high - interval.low


def clustered(rng: np.random.Generator, documents: int, each: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores with mean 0: a shift per document of the given spread, and unit noise per sample."""
    shifts = rng.normal(0, spread, documents)
    values = np.repeat(shifts, each) + rng.normal(0, 1, documents * each)
    return values, np.repeat(np.arange(documents), each)


@pytest.mark.parametrize(("share", "n"), [(0.5, 20), (0.9, 40), (0.97, 40)])
def test_wilson_covers_the_true_share(share: float, n: int) -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(TRIALS):
        interval = mean_interval((rng.random(n) < share).astype(float), np.arange(n))
        hits += interval.low <= share <= interval.high
    # The coverage of any interval on counts oscillates in n and share (Brown, Cai and DasGupta 2001), by about
    # 0.02 at these sizes, hence the wider lower bound.
    assert NOMINAL[0] - 0.02 <= hits / TRIALS <= NOMINAL[1]


def test_wilson_known_value() -> None:
    # The example of Newcombe (1998, Statistics in Medicine 17): 81 of 263 gives 0.2553 to 0.3662.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 12), (7, 12), (12, 12), (81, 263), (1, 5000)])
def test_wilson_agrees_with_scipy_where_successes_are_whole(right: int, n: int, level: float) -> None:
    theirs = stats.binomtest(right, n).proportion_ci(level, method="wilson")
    assert wilson(right / n, n, level) == pytest.approx((theirs.low, theirs.high), abs=1e-14)


@pytest.mark.parametrize("documents", [6, 12, 60])
def test_bootstrap_covers_the_true_mean_with_few_and_many_clusters(documents: int) -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for trial in range(TRIALS):
        values, clusters = clustered(rng, documents, 4, spread=1.0)
        interval = mean_interval(values, clusters, seed=trial)
        hits += interval.low <= 0 <= interval.high
    # With 6 clusters the extremes of the resamples bound what any percentile can reach: 3 points are granted.
    lower = NOMINAL[0] - (0.03 if documents < 10 else 0.0)
    assert lower <= hits / TRIALS <= NOMINAL[1]


def test_ignoring_clusters_would_be_overconfident() -> None:
    rng = np.random.default_rng(3)
    values, clusters = clustered(rng, 15, 10, spread=1.0)
    honest, naive = mean_interval(values, clusters), mean_interval(values, np.arange(len(values)))
    # The design effect here is 1 + 9 * 0.5 = 5.5, so the honest interval is about 2.3 times as wide.
    assert 1.7 < width(honest) / width(naive) < 3.2
    assert (honest.n, honest.n_clusters, naive.n_clusters) == (150, 15, 150)
    assert honest.mean == pytest.approx(naive.mean)


@pytest.mark.parametrize("answer", [0.0, 1.0])
@pytest.mark.parametrize("clusters", [list(range(12)), [i // 3 for i in range(12)], [0] * 12])
def test_equal_answers_are_not_certainty(answer: float, clusters: list[int]) -> None:
    interval = mean_interval([answer] * 12, clusters)
    assert interval.mean == answer
    assert 0 <= interval.low <= answer <= interval.high <= 1
    assert width(interval) == pytest.approx(3.8415 / (interval.n_clusters + 3.8415), abs=1e-3)


def test_single_sample() -> None:
    assert width(mean_interval([1.0], ["a"])) > 0.7
    interval = mean_interval([0.4], ["a"])
    assert interval.mean == 0.4
    assert np.isnan([interval.low, interval.high]).all()


def test_weights_move_the_mean_and_rule_out_wilson() -> None:
    values, clusters = [0.0, 1.0, 1.0, 0.0], ["a", "b", "c", "d"]
    assert mean_interval(values, clusters, weights=[1, 3, 3, 1]).mean == pytest.approx(0.75)
    assert mean_interval(values, clusters, weights=[2, 2, 2, 2]) == mean_interval(values, clusters)


def test_perplexity_is_token_weighted() -> None:
    interval = perplexity_interval(np.log([2.0, 8.0, 8.0]), [100, 50, 50], ["a", "b", "c"])
    assert interval.mean == pytest.approx(4.0)
    assert 2.0 <= interval.low < 4.0 < interval.high <= 8.0
    one = perplexity_interval([1.0, 2.0], [10, 10], ["a", "a"])
    assert one.mean == pytest.approx(np.exp(1.5))
    assert np.isnan(one.low)


def test_perplexity_of_zeros_and_ones_is_no_proportion() -> None:
    interval = perplexity_interval([0.0, 1.0, 1.0, 0.0], [1, 1, 1, 1], [0, 1, 2, 3])
    assert interval.mean == pytest.approx(np.exp(0.5))
    assert 1.0 <= interval.low < interval.high <= np.e + 1e-12


def test_pairing_narrows_the_interval_when_scores_are_correlated() -> None:
    rng = np.random.default_rng(4)
    difficulty = rng.normal(0, 1, 80)
    a, b = difficulty + rng.normal(0.1, 0.2, 80), difficulty + rng.normal(0, 0.2, 80)
    clusters = np.arange(80)
    paired = paired_difference(a, b, clusters)
    unpaired = np.hypot(width(mean_interval(a, clusters)), width(mean_interval(b, clusters)))
    assert paired.mean == pytest.approx(a.mean() - b.mean())
    assert width(paired) < 0.4 * unpaired


def test_paired_difference_covers_the_true_difference() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(TRIALS):
        base = rng.random(40) < 0.8
        worse = base & (rng.random(40) < 0.75)  # a quarter of the right answers is lost: 0.2 in the mean
        interval = paired_difference(worse.astype(float), base.astype(float), np.arange(40), seed=trial)
        hits += interval.low <= -0.2 <= interval.high
    assert NOMINAL[0] - 0.02 <= hits / TRIALS <= NOMINAL[1]


def test_equal_pairs_are_not_certainty() -> None:
    few, many = (paired_difference(np.ones(n), np.ones(n), np.arange(n)) for n in (10, 1000))
    assert few.mean == many.mean == 0
    assert few.low == pytest.approx(-few.high)
    assert width(few) > 0.3 > 0.01 > width(many) > 0
    lost = paired_difference(np.zeros(10), np.ones(10), np.arange(10))
    assert (lost.mean, lost.low) == (-1.0, -1.0)
    assert -1 < lost.high < 0
    exact = paired_difference([2.5, 3.5], [2.5, 3.5], ["a", "b"])
    assert (exact.low, exact.high) == (0.0, 0.0)


def test_token_weights_apply_to_pairs() -> None:
    interval = paired_difference([1.0, 4.0], [0.0, 0.0], ["a", "b"], weights=[3, 1])
    assert interval.mean == pytest.approx(1.75)


def test_seeded_and_independent_of_cluster_names() -> None:
    values, clusters = clustered(np.random.default_rng(6), 10, 3, 1.0)
    assert mean_interval(values, clusters) == mean_interval(values, clusters)
    assert mean_interval(values, clusters) != mean_interval(values, clusters, seed=1)
    assert mean_interval(values, [f"book-{c}" for c in clusters]) == mean_interval(values, clusters)


@pytest.mark.parametrize("freedom", [3, 5, 10, 30, 200])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_student_quantile_agrees_with_scipy(freedom: int, level: float) -> None:
    assert _t_quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=0.01)


def test_higher_level_is_wider() -> None:
    values, clusters = clustered(np.random.default_rng(7), 20, 3, 1.0)
    assert width(mean_interval(values, clusters, level=0.99)) > width(mean_interval(values, clusters, level=0.8))


@pytest.mark.parametrize(
    ("values", "clusters", "weights", "level", "sentence"),
    [
        ([], [], None, 0.95, "at least one sample"),
        ([1.0, np.nan], [0, 1], None, 0.95, "finite numbers"),
        ([1.0, 0.5], [0], None, 0.95, "needs a cluster"),
        ([1.0, 0.5], [0, 1], [1.0, 0.0], 0.95, "positive numbers"),
        ([1.0, 0.5], [0, 1], [1.0], 0.95, "positive numbers"),
        ([1.0, 0.5], [0, 1], None, 95, "between 0 and 1"),
    ],
)
def test_refuses_with_a_sentence(
    values: list[float], clusters: list[int], weights: list[float] | None, level: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        mean_interval(values, clusters, weights, level)


def test_pairs_must_match() -> None:
    with pytest.raises(ValueError, match="one b for every a"):
        paired_difference([1.0], [1.0, 0.0], ["a"])
