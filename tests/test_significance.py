"""Tests of differences on synthetic data with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.analysis.paired_tests import EXACT_UP_TO, FLIPS, family_p, paired_p, sign_flip_p
from harness.analysis.power import detectable_effect, flips_floor, samples_for, samples_needed
from harness.analysis.statistics import holm

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


HOLM = 0.05 / 20  # two-sided: what the first of twenty claims has to reach


def outcomes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every outcome of n right-or-wrong pairs, as shares: gains and losses (outcomes,), and shares (n, outcomes)."""
    gains, losses = (each.ravel() for each in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    kept = gains + losses <= n
    gains, losses = gains[kept], losses[kept]
    place = np.arange(n)[:, None]
    shares = (place < gains).astype(float) - ((place >= gains) & (place < gains + losses))
    return np.stack([gains, losses, n - gains - losses], axis=1), shares / n


def chances(counts: np.ndarray, up: float, down: float) -> np.ndarray:
    """The probability of each outcome."""
    return stats.multinomial.pmf(counts, counts[0].sum(), [up, down, 1 - up - down])


@pytest.mark.parametrize("n", [10, 12, 20, 40])
def test_right_or_wrong_pairs_keep_the_error_rate_and_gain_power(n):
    """Summed over all outcomes: no sampling error but that of the drawn flips, of which p = .00125 has .00035."""
    counts, shares = outcomes(n)
    (ours, _), (exact, _) = paired_p(shares), sign_flip_p(shares)
    for discordance in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5):
        null = chances(counts, discordance / 2, discordance / 2)
        for alpha, most in ((0.025, 0.03), (HOLM / 2, 0.002)):
            assert null[ours <= alpha].sum() <= most
            real = chances(counts, 0.95 * discordance, 0.05 * discordance)
            assert real[ours <= alpha].sum() >= real[exact <= alpha].sum() - 1e-3
    seen = chances(counts, 0.3, 0.0)
    if n == 20:
        # Six of twenty pairs lost and none gained: exact flips have .0156 at best.
        assert seen[ours <= 0.025].sum() > seen[exact <= 0.025].sum() + 0.1


def graded(rng: np.random.Generator, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Differences that are symmetric about zero, of several shapes."""
    sign = rng.choice([-1.0, 1.0], shape)
    return {
        "normal": rng.normal(0, 1, shape),
        "scores like ROUGE": rng.beta(1, 4, shape) - rng.beta(1, 4, shape),
        "heavy tails": sign * np.exp(rng.normal(0, 1, shape)),
        "half of them zero": rng.normal(0, 1, shape) * (rng.random(shape) < 0.5),
    }


def in_documents(rng: np.random.Generator, documents: int, discordance: float) -> np.ndarray:
    """(documents, simulations): gains less losses of five pairs, of which eight in ten have their document's sign."""
    shape = (documents, 5, 10_000)
    sign = rng.choice([-1, 1], (documents, 1, 10_000)) * np.where(rng.random(shape) < 0.2, -1, 1)
    return (sign * (rng.random(shape) < discordance)).sum(axis=1).astype(float)


@pytest.mark.parametrize("clusters", [4, 6, 8, 10])
def test_few_clusters_keep_the_error_rate(clusters):
    rng = np.random.default_rng(8)
    shapes = graded(rng, (clusters, 10_000))
    shapes |= {f"documents, {share}": in_documents(rng, clusters, share) for share in (0.1, 0.3, 0.5)}
    for name, shares in shapes.items():
        p = np.concatenate(paired_p(shares))
        # Both sides of 10,000 runs: the standard error of .025 is .0011, of .00125 it is .00025. The bounds are three
        # of them above the level, and four.
        assert (p <= 0.025).mean() <= 0.03, name
        assert (p <= HOLM / 2).mean() <= 0.002, name


def test_few_clusters_can_reach_what_a_correction_asks():
    """Of six prompts exact flips have 1/64 at best; a difference that is clear to the eye is found."""
    clear = np.random.default_rng(9).normal(1.0, 0.2, (6, 500))
    above, _ = paired_p(clear)
    assert (above <= HOLM / 2).mean() > 0.95
    assert sign_flip_p(clear)[0].min() == 1 / 64


def test_p_becomes_smaller_than_the_drawn_flips_can_tell():
    """All of 40 prompts agree: not 1e-4, the observed flip among the drawn ones, but never below 2**-40."""
    (above, _) = paired_p(np.random.default_rng(15).normal(2.0, 0.5, 40))
    assert 0.5**40 <= above[0] < 1e-8
    assert paired_p(np.ones(20))[0][0] == pytest.approx(1e-4)  # no spread to go by: the flips' own


def test_one_sided_values_are_mirrored():
    shares = np.random.default_rng(10).normal(0.2, 1, (11, 5))
    above, below = paired_p(shares)
    mirrored_above, mirrored_below = paired_p(-shares)
    assert above == pytest.approx(mirrored_below)
    assert below == pytest.approx(mirrored_above)


def test_a_choice_among_cases_is_paid_for_and_less_dearly_than_by_bonferroni():
    """Ten cases that share a method: the least p below .05 in about 5 % of families, far less often by Bonferroni."""
    rng = np.random.default_rng(11)
    families, cases = 400, 10
    together, bonferroni = [], []
    for _ in range(families):
        shares = rng.normal(0, 1, (12, 1)) + rng.normal(0, 0.4, (12, cases))
        _, alone = paired_p(shares)
        together.append(family_p(shares, alone).min())
        bonferroni.append(min(1.0, cases * alone.min()))
    # The standard error of a share of .05 in 400 is .011.
    assert 0.02 <= np.mean(np.array(together) <= 0.05) <= 0.083
    assert np.mean(np.array(bonferroni) <= 0.05) < 0.6 * np.mean(np.array(together) <= 0.05)


def test_cases_with_few_differences_are_corrected_by_their_number():
    shares = np.zeros((20, 3))
    shares[:4, 0] = -1.0
    shares[:, 1:] = np.random.default_rng(12).normal(0, 1, (20, 2))
    _, alone = paired_p(shares)
    assert family_p(shares, alone)[0] == pytest.approx(min(1.0, 3 * alone[0]))
    assert family_p(shares[:, :1], alone[:1]) == pytest.approx(alone[:1])


@pytest.mark.parametrize("alpha", [0.05, HOLM])
@pytest.mark.parametrize("effect", [0.9, 0.5, 0.3])
def test_the_power_of_graded_differences_is_the_promised_one(alpha, effect):
    n = int(samples_for(effect, 1.0, alpha))
    assert float(detectable_effect(1 / np.sqrt(n), n, alpha)) <= effect
    values = np.random.default_rng(13).normal(effect, 1.0, (n, SIMULATIONS))
    above, _ = paired_p(values)
    # The standard error of .8 in 2,000 simulations is .009; n is a whole number, which matters where it is small.
    assert (above <= alpha / 2).mean() == pytest.approx(0.8, abs=0.03 if n > 20 else 0.05)


@pytest.mark.parametrize("alpha", [0.05, HOLM])
@pytest.mark.parametrize(("up", "down"), [(0.3, 0.05), (0.15, 0.05), (0.4, 0.2)])
def test_the_power_of_right_or_wrong_pairs_is_the_promised_one(alpha, up, down):
    n = int(samples_for(up - down, np.sqrt(up + down - (up - down) ** 2), alpha, differing=up + down))
    kind = np.random.default_rng(14).random((n, SIMULATIONS))
    above, _ = paired_p((kind < up).astype(float) - ((kind >= up) & (kind < up + down)))
    assert (above <= alpha / 2).mean() == pytest.approx(0.8, abs=0.03)


def test_the_floor_is_the_fewest_samples_that_can_reach_the_level():
    for alpha in (0.05, HOLM, 0.05 / 40):
        floor = flips_floor(alpha)
        assert 2 * sign_flip_p(np.ones(floor))[0][0] <= alpha < 2 * sign_flip_p(np.ones(floor - 1))[0][0]
    assert flips_floor(HOLM, differing=0.1) == 100
    assert samples_for(5.0, 0.1, HOLM) == 10
    assert samples_needed(5.0, 0.1, 8, HOLM) == 10
    assert np.isinf(detectable_effect(0.1, 9, HOLM))
    for alpha in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            flips_floor(alpha)


def test_plans_take_arrays_and_a_stricter_level_asks_for_more():
    found = samples_for([0.5, 0.2, 0.0, 1e-9], 1.0, HOLM)
    assert found.shape == (4,)
    assert found[0] < found[1]
    assert np.isinf(found[2:]).all()
    assert (samples_for([0.5, 0.2], 1.0, HOLM) > samples_for([0.5, 0.2], 1.0, 0.05)).all()
    assert samples_needed(0.5, 1.0 / np.sqrt(10), 10) == samples_for(0.5, 1.0, 0.05)


def test_no_number_of_samples_tells_nothing_from_nothing():
    assert samples_needed(0.0, 0.1, 20) is None
    assert samples_needed(0.1, np.nan, 20) is None
    assert samples_needed(0.1, 0.0, 20) is None
    assert samples_needed(5.0, 0.1, 20) == 20
