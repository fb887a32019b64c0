"""How many samples a claim's test needs, and the effect that so many samples detect.

A claim is *reproduced* where every one of its cases is seen (intersection-union) after Holm's correction over the
paper's comparisons. So each case is tested at 0.05 / m two-sided, m being the number of comparisons, and the power is
the chance that all cases are seen at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, stdtrit

from harness.analysis.power import flips_floor
from harness.analysis.statistics import Floats
from harness.papers.claim_cases import ClaimCase
from harness.papers.claim_ledger import Claim

ALPHA = 0.05  # family-wise, as in `harness.papers.claim_verdicts`
POWER = 0.8
MOST = 10_000_000  # samples; beyond this no number is named
STEP = 1e-4  # of the numerical gradient of a case, in units of a score


@dataclass(frozen=True)
class CaseDemand:
    """One case as its test sees it: the effect to be seen, and ``spread``, the standard error of n samples times √n.

    ``strata``: tasks with n samples each.
    """

    effect: float
    spread: float
    strata: int = 1


def level(claims: Sequence[Claim]) -> float:
    """The two-sided level of each test of a paper: 0.05 over the number of its distinct comparisons (Holm's first)."""
    distinct = {repr(each.comparisons) for each in claims if each.comparisons}
    return ALPHA / max(1, len(distinct))


def case_spread(case: ClaimCase, means: Floats, spreads: Floats) -> float:
    """The standard error at one sample a stratum of a case's measure. ``means``: (strata, cells).

    ``spreads``: (strata,), or (strata, cells) where cells differ in it, the standard deviation over samples of the
    difference of two cells. It is taken for that of
    one cell's scores as well, so that two cells share half of their variance; a case whose weights do not add up to
    zero (a ratio, a factor) feels the shared half, too. The gradient is numerical, since maxima and ratios are no sums.
    """
    moved = means + STEP * np.eye(means.size).reshape(-1, *means.shape)
    gradient = ((case.measure(moved) - case.measure(means)) / STEP).reshape(means.shape)
    each = np.broadcast_to(spreads.reshape(len(means), -1), means.shape)
    shared = each.mean(axis=1) * gradient.sum(axis=1)
    variance = 0.5 * (((each * gradient) ** 2).sum() + (shared**2).sum())
    return round(math.sqrt(float(variance)), 6)  # equal cases are told by equal spreads


def power(demands: Sequence[CaseDemand], samples: int, alpha: float) -> float:
    """The chance that all cases are seen with so many samples a stratum: a product, as if they were independent.

    They share samples, which makes the true chance greater. Of one case it is that of `harness.analysis.power`, by the
    normal approximation of Student's t with an effect.
    """
    seen = 1.0
    for each, count in Counter(demands).items():
        if each.spread <= 0:
            seen *= float(each.effect > 0)
            continue
        freedom = max(1, samples * each.strata - 1)
        critical = -float(stdtrit(freedom, alpha / 2))
        apart = each.effect * math.sqrt(samples) / each.spread - critical
        seen *= float(ndtr(apart / math.sqrt(1 + critical**2 / (2 * freedom)))) ** count
    return seen


def samples_for_power(demands: Sequence[CaseDemand], alpha: float, wanted: float = POWER) -> int | None:
    """The fewest samples a stratum that see all cases with this power; None where no number does."""
    if not demands or any(each.effect <= 0 for each in demands) or power(demands, MOST, alpha) < wanted:
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(demands, middle, alpha) >= wanted else (middle, high)
    return high


def detected_effect(demands: Sequence[CaseDemand], samples: int, alpha: float, wanted: float = POWER) -> float:
    """The smallest effect, the same in every case, that so many samples see with this power."""
    low, high = 0.0, 1000.0 * max(each.spread for each in demands)
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        equal = [replace(each, effect=middle) for each in demands]
        low, high = (low, middle) if power(equal, samples, alpha) >= wanted else (middle, high)
    return high


def floor_samples(alpha: float, differing: float) -> int:
    """The fewest samples a stratum with which sign flips can reach the level at all.

    ``differing``: in how many strata two methods differ in one sample, so that a share where there is one stratum.
    """
    return math.ceil(flips_floor(alpha) / differing)


def is_decidable(demands: Sequence[CaseDemand], samples: int, alpha: float) -> bool:
    """Whether so many samples see every case with 80 % power."""
    return bool(demands) and power(demands, samples, alpha) >= POWER
