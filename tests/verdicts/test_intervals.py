"""The intervals and p-values of cases on synthetic data with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from harness.papers.claim_cases import ClaimCase
from harness.papers.claim_tests import ClaimResult, claim_results
from harness.papers.paired_bootstrap import Stratum, resample

SIMULATIONS = 1_000
TRUTH = 0.1


def simulated(rng: np.random.Generator, documents: int, each: int, tasks: int, pairs: int = 1) -> list[Stratum]:
    """Pairs of cells whose scores differ by `TRUTH` on average, dependent within documents; left ones first."""
    out = []
    for task in range(tasks):
        right = rng.normal(0, 1, (documents, each, pairs))
        gain = TRUTH + rng.normal(0, 0.3, (documents, 1, pairs)) + rng.normal(0, 0.3, (documents, each, pairs))
        totals = np.concatenate([(right + gain).sum(axis=1), right.sum(axis=1)], axis=1)[:, :, None]
        out.append(Stratum(f"task {task}", totals, np.full(documents, float(each)), documents * each))
    return out


def found_in(strata: list[Stratum]) -> list[ClaimResult]:
    """One finding for each pair of cells."""
    pairs = strata[0].totals.shape[1] // 2
    group = tuple(range(len(strata)))

    def case(place: int) -> ClaimCase:
        weights = np.zeros(2 * pairs)
        weights[[place, pairs + place]] = 1.0, -1.0
        both = [place, pairs + place]
        return ClaimCase(str(place), lambda scores: scores[..., both].mean(axis=-2) @ [1.0, -1.0], group, weights)

    return claim_results([case(place) for place in range(pairs)], strata, level=0.95, bounded=True)


@pytest.mark.parametrize(("documents", "each", "tasks"), [(40, 1, 1), (30, 4, 1), (25, 2, 3), (4, 5, 1), (4, 5, 3)])
def test_a_95_percent_interval_covers_in_95_percent_of_cases(documents, each, tasks):
    found = found_in(simulated(np.random.default_rng(3), documents, each, tasks, SIMULATIONS))
    covered = np.mean([one.low <= TRUTH <= one.high for one in found])
    # 0.95 in 1,000 simulations has a standard error of 0.007; the degrees of freedom of several tasks of four documents
    # are themselves estimated, on the cautious side.
    assert 0.93 <= covered <= (0.985 if documents < 10 and tasks > 1 else 0.97)
    assert {one.n for one in found} == {documents * each * tasks}


def test_the_standard_error_is_that_of_the_estimate():
    found = found_in(simulated(np.random.default_rng(4), 40, 1, 1, SIMULATIONS))
    spread = np.std([one.estimate for one in found])
    assert np.mean([one.standard_error for one in found]) == pytest.approx(spread, rel=0.1)


def counted(rng: np.random.Generator, n: int, gains: float, losses: float, margin: float = 0.0) -> list[ClaimResult]:
    """Cases of right-or-wrong pairs, whose left is right alone in a share of gains, and right in one of losses."""
    kind = rng.random((n, SIMULATIONS))
    left, right = kind < gains, (kind >= gains) & (kind < gains + losses)
    stratum = Stratum("task", np.concatenate([left, right], axis=1).astype(float)[:, :, None], np.ones(n), n)

    def case(place: int) -> ClaimCase:
        weights = np.zeros(2 * SIMULATIONS)
        weights[[place, SIMULATIONS + place]] = 1.0, -1.0
        pair = [place, SIMULATIONS + place]
        return ClaimCase(
            str(place), lambda scores: scores[..., 0, pair] @ [1.0, -1.0] + margin, (0,), tuple(pair), weights, margin
        )

    return claim_results([case(place) for place in range(SIMULATIONS)], [stratum], level=0.95, bounded=True)


@pytest.mark.parametrize("n", [10, 40])
@pytest.mark.parametrize(("gains", "losses"), [(0.05, 0.05), (0.0, 0.1), (0.05, 0.25), (0.25, 0.25)])
def test_intervals_of_right_or_wrong_pairs_cover(n, gains, losses):
    found = counted(np.random.default_rng(11), n, gains, losses)
    covered = np.mean([one.low <= gains - losses <= one.high for one in found])
    assert covered >= 0.93  # .95 less three standard errors of .007; few pairs are read cautiously
    assert np.mean([one.high - one.low for one in found]) < (1.1 if n == 10 else 0.5)


@pytest.mark.parametrize("n", [20, 60, 150])
@pytest.mark.parametrize(("gains", "losses"), [(0.0, 0.1), (0.1, 0.2), (0.0, 0.02), (0.02, 0.04)])
def test_a_margin_is_not_passed_because_no_sample_happened_to_differ(n, gains, losses):
    """The truth lies on the margin: "no worse by .1" is found in at most 2.5 % of cases, and so is its opposite."""
    found = counted(np.random.default_rng(12), n, gains, losses, margin=losses - gains)
    for p in ([one.p_for for one in found], [one.p_against for one in found]):
        # .025 in 1,000 simulations has a standard error of .005, .00125 of .0011: three of them above.
        assert np.mean(np.array(p) <= 0.025) <= 0.04
        assert np.mean(np.array(p) <= 0.00125) <= 0.0046


def test_sharing_flips_never_costs_more_than_the_number_of_cases():
    """Cases that share a method: p_against_shared times their number is the corrected p, below Bonferroni's."""
    rng = np.random.default_rng(13)
    method = rng.normal(-0.3, 1, (30, 1))
    scores = np.concatenate([method, rng.normal(0, 0.3, (30, 6))], axis=1)

    def case(other: int) -> ClaimCase:
        weights = np.zeros(7)
        weights[[0, other]] = 1.0, -1.0
        return ClaimCase(str(other), lambda s: s[..., 0, 0] - s[..., 0, other], (0,), (0, other), weights)

    stratum = Stratum("task", scores[:, :, None], np.ones(30), 30)
    found = claim_results([case(other) for other in range(1, 7)], [stratum], level=0.95, bounded=False)
    least = min(found, key=lambda one: one.p_against)
    assert 6 * least.p_against > 6 * least.p_against_shared >= least.p_against
    (alone,) = claim_results([case(1)], [stratum], level=0.95, bounded=False)
    assert alone.p_against_shared == alone.p_against


def test_the_order_of_the_sums_changes_no_digit():
    """Processors add in different orders: .107 on one was .108 on the other."""
    scores = np.random.default_rng(17).integers(0, 100, (40, 2)) / 100
    case = ClaimCase("left > right", lambda s: s[..., 0, 0] - s[..., 0, 1], (0,), (0, 1), np.array([1.0, -1.0]))
    ends = {
        (one.estimate, one.low, one.high)
        for seed in range(20)
        for one in claim_results(
            [case],
            [Stratum("task", np.random.default_rng(seed).permutation(scores)[:, :, None], np.ones(40), 40)],
            level=0.95,
            bounded=False,
        )
    }
    assert len(ends) == 1


def test_p_values_are_uniform_where_there_is_no_difference():
    strata = simulated(np.random.default_rng(7), 30, 3, 2, SIMULATIONS)
    for each in strata:  # the truth is taken off
        each.totals[:, :SIMULATIONS] -= TRUTH * each.masses[:, None, None]
    found = found_in(strata)
    for p in ([one.p_for for one in found], [one.p_against for one in found]):
        assert 0.03 <= np.mean(np.array(p) <= 0.05) <= 0.07


def test_one_document_gives_no_interval():
    (found,) = found_in(simulated(np.random.default_rng(5), 1, 8, 1))
    assert np.isnan([found.low, found.high]).all()
    assert found.p_for >= 0.5


def test_all_cells_see_the_same_draws():
    """Two equal cells never differ, in any draw: what is compared is paired."""
    strata = simulated(np.random.default_rng(6), 20, 2, 2)
    for each in strata:
        each.totals[:, 1] = each.totals[:, 0]
    often = resample(strata).often
    assert np.ptp(often[..., 0]) > 0.1
    assert np.array_equal(often[..., 0], often[..., 1])
