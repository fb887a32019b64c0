"""Tests of differences on synthetic data with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.analysis.statistics import EXACT_UP_TO, FLIPS, holm, samples_needed, sign_flip_p

SIMULATIONS = 2_000


def shares_of(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """What each cluster adds to the mean, for values of shape (samples, simulations)."""
    out = np.zeros((clusters.max() + 1, values.shape[1]))
    np.add.at(out, clusters, values / len(values))
    return out


def dependent(rng: np.random.Generator, documents: int, each: int, effect: float) -> np.ndarray:
    """(documents, simulations) shares of differences that are dependent within documents."""
    shift = rng.normal(0, 1, (documents, SIMULATIONS)).repeat(each, axis=0)
    values = effect + shift + rng.normal(0, 1, shift.shape)
    return shares_of(values, np.arange(documents).repeat(each))


@pytest.mark.parametrize("documents", [8, 20])
def test_false_positives_are_as_rare_as_promised(documents):
    """Without an effect a test at 5 % rejects in about 5 % of cases, though samples share documents."""
    above, below = sign_flip_p(dependent(np.random.default_rng(1), documents, 5, 0.0))
    for p in (above, below):
        # The standard error of a share of 0.05 in 2,000 simulations is 0.005.
        assert 0.035 <= (p <= 0.05).mean() <= 0.065
    assert ((above <= 0.025) | (below <= 0.025)).mean() <= 0.065


def test_forgetting_the_documents_would_find_effects_that_are_not_there():
    """The same data with every sample as a cluster of its own rejects far too often: the clusters matter."""
    rng = np.random.default_rng(2)
    shift = rng.normal(0, 1, (20, 400)).repeat(5, axis=0)
    values = shift + rng.normal(0, 1, shift.shape)
    above, _ = sign_flip_p(values / len(values))
    assert (above <= 0.05).mean() > 0.12


def test_an_effect_is_found_with_the_power_that_samples_needed_promises():
    """Planned for 80 % power, about 80 % of the simulations reject, two-sided at 5 %."""
    effect, spread = 0.5, 1.0
    n = samples_needed(effect, spread / np.sqrt(10), n=10)
    assert n == 32  # 10 * (2.8016 * 0.3162 / 0.5) ** 2 = 31.4
    rng = np.random.default_rng(3)
    values = rng.normal(effect, spread, (n, SIMULATIONS))
    above, _ = sign_flip_p(values / n)
    assert 0.75 <= (above <= 0.025).mean() <= 0.85


def test_few_clusters_are_enumerated():
    """Three equal clusters can be flipped in 8 ways, one of them as extreme as the observed."""
    above, below = sign_flip_p([1.0, 1.0, 1.0])
    assert (above[0], below[0]) == (1 / 8, 1.0)


def test_exact_and_drawn_agree_with_scipy():
    rng = np.random.default_rng(4)
    for clusters in (EXACT_UP_TO, EXACT_UP_TO + 18):
        values = rng.normal(0.3, 1, clusters)
        above, below = sign_flip_p(values / clusters)
        for ours, side in ((above, "greater"), (below, "less")):
            theirs = stats.permutation_test(
                (values,), np.mean, permutation_type="samples", alternative=side, n_resamples=FLIPS, rng=5
            ).pvalue
            assert ours[0] == pytest.approx(theirs, abs=0.015)


def test_equal_differences_decide_nothing():
    above, below = sign_flip_p(np.zeros(30))
    assert above[0] == below[0] == 1.0


def test_drawn_flips_are_seeded_and_never_give_zero():
    far = np.ones(100)
    assert sign_flip_p(far)[0][0] == 1 / (FLIPS + 1)
    noisy = np.random.default_rng(6).normal(0.1, 1, 40)
    assert sign_flip_p(noisy) == sign_flip_p(noisy)
    assert sign_flip_p(noisy, seed=1) != sign_flip_p(noisy)


def test_refuses_shares_that_are_no_numbers():
    for shares in ([], [np.nan]):
        with pytest.raises(ValueError, match="finite shares"):
            sign_flip_p(shares)


def test_holm_by_hand():
    # The example of Holm's procedure with four tests: 0.005 * 4, 0.01 * 3, 0.03 * 2, 0.04 * 1 (held up by 0.06).
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0


@pytest.mark.parametrize("true_nulls", [10, 6])
def test_holm_keeps_the_family_wise_error(true_nulls):
    """Among 10 tests, some with a real effect, a false rejection happens in at most about 5 % of families."""
    rng = np.random.default_rng(7)
    z = rng.normal(0, 1, (4_000, 10)) + np.where(np.arange(10) < true_nulls, 0.0, 4.0)
    p = 2 * stats.norm.sf(np.abs(z))
    rejected = np.array([holm(family) <= 0.05 for family in p])
    wrong = rejected[:, :true_nulls].any(axis=1).mean()
    # The standard error of 0.05 in 4,000 families is 0.0034.
    assert 0.02 <= wrong <= 0.061
    assert (p[:, :true_nulls] <= 0.05).any(axis=1).mean() > 0.2  # without the correction


def test_holm_rejects_more_than_bonferroni():
    p = np.array([0.001, 0.012, 0.02, 0.04])
    assert (holm(p) <= 0.05).sum() > (p * 4 <= 0.05).sum()


@pytest.mark.parametrize("p", [[0.5, 1.5], [-0.1], [np.nan], [[0.1]]])
def test_holm_refuses_what_is_no_p_value(p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm(p)


def test_no_number_of_samples_tells_nothing_from_nothing():
    assert samples_needed(0.0, 0.1, 20) is None
    assert samples_needed(0.1, np.nan, 20) is None
    assert samples_needed(0.1, 0.0, 20) is None
    assert samples_needed(5.0, 0.1, 20) == 20
