"""Intervals on synthetic data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.analysis.statistics import (
    Interval,
    cluster_spread,
    mean_interval,
    paired_difference,
    perplexity_interval,
    student_quantile,
    wilson,
)

TRIALS = 400
# 400 trials at a true coverage of 0.95 have a standard error of 0.011. The lower bound is three of them below
# nominal; the upper one leaves room for methods that are cautious by design.
NOMINAL = (0.917, 0.99)
COUNTED = 1_000  # runs where a coverage of at least .93 is held


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


@pytest.mark.parametrize("documents", [4, 12, 60])
def test_covers_the_true_mean_with_few_and_many_clusters(documents: int) -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(TRIALS):
        values, clusters = clustered(rng, documents, 4, spread=1.0)
        interval = mean_interval(values, clusters)
        hits += interval.low <= 0 <= interval.high
    assert NOMINAL[0] <= hits / TRIALS <= NOMINAL[1]


@pytest.mark.parametrize("dependence", [0.0, 0.3])
@pytest.mark.parametrize(("documents", "share"), [(4, 0.5), (12, 0.1), (12, 0.9), (12, 0.5)])
def test_covers_a_share_in_few_clusters_of_five(documents: int, share: float, dependence: float) -> None:
    """Right-or-wrong scores; ``dependence``: the correlation of two samples of one document (beta-binomial)."""
    rng = np.random.default_rng(8)
    chance = np.full((COUNTED, documents), share)
    if dependence:
        size = 1 / dependence - 1
        chance = rng.beta(share * size, (1 - share) * size, (COUNTED, documents))
    right = (rng.random((COUNTED, documents, 5)) < chance[:, :, None]).astype(float)
    found = [mean_interval(each.ravel(), np.arange(documents).repeat(5)) for each in right]
    hits = np.mean([each.low <= share <= each.high for each in found])
    # A coverage of .95 has a standard error of .007 in 1,000 runs: three of them below nominal. It may be above it,
    # since two or three degrees of freedom make the interval cautious, but never by the whole range.
    assert hits >= 0.93
    assert np.mean([width(each) for each in found]) < (0.75 if documents == 4 else 0.45)


@pytest.mark.parametrize("documents", [4, 12])
def test_covers_the_perplexity_of_few_clusters_of_five(documents: int) -> None:
    rng = np.random.default_rng(9)
    hits = 0
    for _ in range(COUNTED):
        nats, clusters = clustered(rng, documents, 5, spread=0.5)
        tokens = rng.integers(50, 200, len(nats))
        interval = perplexity_interval(nats + 3, tokens, clusters)
        hits += interval.low <= np.exp(3) <= interval.high
    assert 0.93 <= hits / COUNTED <= 0.98  # the tolerance of the test above


@pytest.mark.parametrize(("documents", "each"), [(10, 1), (40, 1), (4, 5), (12, 5)])
@pytest.mark.parametrize(("gains", "losses"), [(0.05, 0.05), (0.0, 0.1), (0.05, 0.25)])
def test_covers_the_difference_of_pairs(documents: int, each: int, gains: float, losses: float) -> None:
    rng = np.random.default_rng(10)
    clusters = np.arange(documents).repeat(each)
    hits = 0
    for _ in range(COUNTED):
        kind = rng.random(len(clusters))
        up, down = kind < gains, (kind >= gains) & (kind < gains + losses)
        interval = paired_difference(up.astype(float), down.astype(float), clusters)
        hits += interval.low <= gains - losses <= interval.high
    assert hits / COUNTED >= 0.93


def test_the_spread_is_that_of_the_mean() -> None:
    """Also with clusters of unequal mass, whose degrees of freedom are fewer than their number less one."""
    rng = np.random.default_rng(11)
    masses = np.array([8.0, 4, 2, 2, 1, 1, 1, 1])
    totals = masses * rng.normal(3, 1, (4_000, 8))  # one shift per document: its sum varies with its mass
    found = [cluster_spread(each, masses) for each in totals]
    assert np.var([each.mean for each in found]) == pytest.approx((masses**2).sum() / masses.sum() ** 2, rel=0.07)
    covered = [low <= 3 <= high for low, high in (each.interval() for each in found)]
    assert 0.93 <= np.mean(covered) <= 0.995
    assert found[0].freedom == pytest.approx(20**2 / 92 - 1)
    assert cluster_spread(totals[0], np.ones(8)).freedom == pytest.approx(7)
    assert np.isnan(cluster_spread([1.0], [2.0]).variance)


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


def test_weights_move_the_mean_and_only_their_ratios_count() -> None:
    values, clusters = [0.0, 1.0, 1.0, 0.0], ["a", "b", "c", "d"]
    assert mean_interval(values, clusters, weights=[1, 3, 3, 1]).mean == pytest.approx(0.75)
    assert mean_interval(values, clusters, weights=[2, 2, 2, 2]) == mean_interval(values, clusters)


def test_perplexity_is_token_weighted() -> None:
    interval = perplexity_interval(np.log([2.0, 8.0, 8.0]), [100, 50, 50], ["a", "b", "c"])
    assert interval.mean == pytest.approx(4.0)
    assert interval.low < 4.0 < interval.high
    one = perplexity_interval([1.0, 2.0], [10, 10], ["a", "a"])
    assert one.mean == pytest.approx(np.exp(1.5))
    assert np.isnan(one.low)


def test_perplexity_of_zeros_and_ones_is_no_proportion() -> None:
    interval = perplexity_interval([0.0, 1.0, 1.0, 0.0], [1, 1, 1, 1], [0, 1, 2, 3])
    assert interval.mean == pytest.approx(np.exp(0.5))
    assert interval.low < np.exp(0.5) < interval.high
    # Student's over four numbers: 0.5 -+ 3.182 * 0.577 / 2, not the bounds of a share.
    assert np.log(interval.high) == pytest.approx(0.5 + 3.1824 * 0.57735 / 2, abs=1e-3)


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
    for _ in range(TRIALS):
        base = rng.random(40) < 0.8
        worse = base & (rng.random(40) < 0.75)  # a quarter of the right answers is lost: 0.2 in the mean
        interval = paired_difference(worse.astype(float), base.astype(float), np.arange(40))
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


def test_independent_of_cluster_names_and_of_order() -> None:
    values, clusters = clustered(np.random.default_rng(6), 10, 3, 1.0)
    found = mean_interval(values, clusters)
    assert mean_interval(values, [f"book-{c}" for c in clusters]) == found
    turned = mean_interval(values[::-1], clusters[::-1])
    assert [turned.low, turned.high] == pytest.approx([found.low, found.high])


def test_student_quantile_known_values() -> None:
    assert student_quantile(0.95, 3) == pytest.approx(3.1824, abs=1e-4)  # any table of Student's t
    assert student_quantile(0.95, 1e9) == pytest.approx(1.95996, abs=1e-5)


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
