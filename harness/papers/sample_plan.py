"""How many samples each experiment gets, from the effects that its claims want to see and the time there is.

The papers' own effects, a point of 49, would need tens of thousands of samples. So one smallest effect of interest is
found such that the sweep of all papers fits into the time allowed: a claim that wants a smaller effect gets the samples
for this one, and is named with the number that it would need. ``conf/samples.yaml`` keeps the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.papers.claim_demands import ClaimDemand, claim_demands
from harness.papers.claim_power import detected_effect, samples_for_power
from harness.papers.published import PAPERS
from harness.papers.sweep_cost import experiment_points, sweep_seconds

FEWEST, MOST, STEP = 10, 120, 5  # samples per cell
MINUTES, PROCESSES = 33.0, 2  # of the sweep over all papers
BOUNDS = 0.05, 10.0  # standard deviations among which the smallest effect of interest is looked for


@dataclass(frozen=True)
class ClaimSamples:
    """What a claim gets. ``detected``: the effect that so many samples see, in units of its metric."""

    demand: ClaimDemand
    samples: int
    detected: float

    @property
    def falls_short(self) -> bool:
        """Whether the effect that it wants would need more samples than it gets."""
        return self.demand.needed is None or self.demand.needed > self.samples


@dataclass(frozen=True)
class SamplePlan:
    """Samples per cell by experiment, and in words the claim that sets them.

    ``effect``: the smallest effect of interest, in standard deviations of a claim's paired differences. ``seconds``: of
    one process.
    """

    effect: float
    samples: Mapping[str, int]
    reasons: Mapping[str, str]
    seconds: float


def sample_plan(minutes: float = MINUTES, processes: int = PROCESSES, scale: str = "mini") -> SamplePlan:
    """The plan for the experiments of all papers within the time that is allowed.

    The smallest effect of interest is one for all claims, in standard deviations of their own paired differences: a
    mean over seven tasks has smaller differences than one task, and a smaller spread. It is that of a claim whose cells
    cost the average; n samples see an effect that goes with 1 / √n, and the sum of all claims' variances under a given
    cost is smallest where n goes with 1 / √cost (Neyman 1934, JRSS 97, on allocation): cheap claims get more.
    """
    points = experiment_points(scale)
    demands = [each for paper in PAPERS for each in claim_demands(paper, scale)]
    costs = {each: sweep_seconds({n: points[n] for n in each}, dict.fromkeys(each, 1)) for each in _groups(demands)}
    average = math.exp(sum(math.log(costs[each.experiments]) for each in demands) / len(demands))

    def plan(effect: float) -> dict[str, tuple[int, ClaimDemand | None]]:
        """By experiment its samples, and the claim that asks for them."""
        found: dict[str, tuple[int, ClaimDemand | None]] = dict.fromkeys(points, (FEWEST, None))
        for each in demands:
            own = claim_samples(each, effect * (costs[each.experiments] / average) ** 0.25)
            for name in each.experiments:
                if own > found[name][0] or found[name][1] is None:
                    found[name] = own, each
        return found

    def seconds(found: Mapping[str, tuple[int, ClaimDemand | None]]) -> float:
        return sweep_seconds(points, {name: samples for name, (samples, _) in found.items()})

    low, high = BOUNDS
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if seconds(plan(middle)) <= 60 * minutes * processes else (middle, high)
    found = plan(high)
    return SamplePlan(
        high,
        {name: samples for name, (samples, _) in found.items()},
        {name: _reason(samples, demand) for name, (samples, demand) in found.items()},
        seconds(found),
    )


def _reason(samples: int, demand: ClaimDemand | None) -> str:
    if demand is None:
        return "no claim"
    return f"{demand.claim.id}, which sees {detected_effect(demand.cases, samples, demand.alpha):.2g}"


def claim_samples(demand: ClaimDemand, smallest: float) -> int:
    """Samples for the effect that the claim wants, or for ``smallest`` standard deviations where that is greater."""
    effect = max(demand.wanted.value, smallest * demand.widest)
    found = samples_for_power(demand.seeing(effect), demand.alpha) or MOST
    return min(MOST, max(FEWEST, STEP * math.ceil(max(found, demand.floor) / STEP)))


def samples_of_claims(demands: Sequence[ClaimDemand], samples: Mapping[str, int]) -> list[ClaimSamples]:
    """What each claim gets from so many samples of each experiment; claims of several experiments the fewest."""
    found = []
    for each in demands:
        own = min(samples[name] for name in each.experiments)
        found.append(ClaimSamples(each, own, detected_effect(each.cases, own, each.alpha)))
    return found


def _groups(demands: Sequence[ClaimDemand]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(each.experiments for each in demands))
