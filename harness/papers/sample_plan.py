"""How many samples each experiment gets, from the effects that its claims want to see and the time there is.

The papers' own effects, a point of 49, would need tens of thousands of samples, so not every claim can be decided. The
pilot (`harness.papers.claim_pilot`) says how clearly each claim leans; time is spent where it decides most. What a
claim wants, sees and would need stands in `make plan-<paper>`; ``conf/samples/<scale>.yaml`` keeps the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.config.experiments import PlannedSamples, SampleRule
from harness.papers.claim_demands import ClaimDemand, claim_demands, task_label
from harness.papers.claim_pilot import FIXED_PLACES, ClaimPilot, stored_pilot
from harness.papers.claim_power import detected_effect, samples_for_power
from harness.papers.published import PAPERS, Scale
from harness.papers.sweep_cost import SweepCost, experiment_points

MOST, STEP = 240, 2  # samples per cell
PROCESSES = 2
SMALLEST = 1.0  # effect of interest of a claim without a pilot, in standard deviations of its paired differences


@dataclass(frozen=True)
class PlanSettings:
    """Of a scale. ``minutes``: of the sweep over all papers, beside those to begin and to end.

    ``seed``: of the samples, none of the pilot's; ``unread``: windows of novels with which it begins and that the pilot
    has not read; ``fewest``: samples of any cell, by prompt regime.
    """

    minutes: float
    seed: int
    unread: int
    fewest: Mapping[str, int]


SETTINGS: Mapping[Scale, PlanSettings] = {
    # The pilot: seeds 0, 1, 3, 4 and 5.
    "mini": PlanSettings(25.0, 10, 60, {"blocked": 4, "one_shot": 4, "simulated": 4, "token_fed": 4}),
    # The pilot: seed 0. Tables of a pretrained model are read too; token by token a sample takes 5 to 18 times as long.
    "small": PlanSettings(91.5, 2, 30, {"blocked": 10, "one_shot": 10, "simulated": 10, "token_fed": 4}),
}


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
    """Samples by claim, with those that share its cells; the others have the fewest.

    ``expected``: claims about rows that the pilot expects to be decided; ``seconds``: of one process.
    """

    scale: Scale
    bought: Sequence[tuple[ClaimCells, int]]
    expected: float
    seconds: float

    def rules(self) -> dict[str, dict[SampleRule, list[str]]]:
        """By item its rules, each with the claims that it is for."""
        points = experiment_points(self.scale)
        found: dict[str, dict[SampleRule, list[str]]] = {item: {} for item in points}
        for group, count in self.bought:
            for item in group.experiments:
                if any(map(group.cells.holds_for, points[item])):
                    claims = found[item].setdefault(replace(group.cells, samples=count), [])
                    claims.extend(demand.claim.id for demand in group.demands)
        return found

    def samples(self) -> PlannedSamples:
        """As ``conf/samples/<scale>.yaml`` says it."""
        rules = {item: tuple(own) for item, own in self.rules().items()}
        return PlannedSamples(self.scale, SETTINGS[self.scale].seed, SETTINGS[self.scale].fewest, rules)


@dataclass(frozen=True)
class ClaimCells:
    """Claims that the same cells decide: those of some experiments that ``cells``, a rule of any number, is about.

    ``most``: samples of them that a pilot has not read.
    """

    demands: tuple[ClaimDemand, ...]
    experiments: tuple[str, ...]
    cells: SampleRule
    most: int

    def chance(self, samples: int, pilot: Mapping[str, ClaimPilot]) -> float:
        """How many of them so many samples are expected to decide; samples that the pilot has seen add nothing."""
        fresh = min(samples, self.most)
        return sum(_chance(each, fresh, pilot.get(each.claim.id)) for each in self.demands)


def _chance(demand: ClaimDemand, samples: int, pilot: ClaimPilot | None) -> float:
    """Without a pilot: 1 where there are the samples for its own effect, or the smallest one where that is greater."""
    return float(samples >= unseen_samples(demand)) if pilot is None else pilot.chance(samples, demand.alpha)


def unseen_samples(demand: ClaimDemand) -> int:
    """Samples that show a claim's effect without knowing anything of ours, or `SMALLEST` where that is greater."""
    effect = max(demand.wanted.value, SMALLEST * demand.widest)
    found = samples_for_power(demand.seeing(effect), demand.alpha) or MOST
    return min(MOST, STEP * -(-max(found, demand.floor) // STEP))


def sample_plan(scale: Scale, minutes: float = 0.0, processes: int = PROCESSES) -> SamplePlan:
    """The plan for the experiments of all papers that decides most claims within ``minutes`` (0: the scale's own).

    Greedy: of all claims and numbers of samples the one is bought that adds the most expected decisions per second,
    until no other fits. Cells that were bought for one claim are free for the next.
    """
    minutes = minutes or SETTINGS[scale].minutes
    pilot, cost = stored_pilot(scale), SweepCost(experiment_points(scale), scale)
    groups = claim_cells(scale, pilot)
    cells = [
        cost.cells({name: [p for p in cost.points[name] if g.cells.holds_for(p)] for name in g.experiments})
        for g in groups
    ]
    has = np.zeros(
        (len(groups), len(cost.at)), dtype=bool
    )  # which cells a group has: prices of those that share change
    for group, own in enumerate(cells):
        has[group, own.places] = True
    fewest = SETTINGS[scale].fewest
    numbers = np.arange(min(fewest.values()), MOST + 1, STEP)
    chances = np.array([[group.chance(int(n), pilot) for n in numbers] for group in groups])  # (groups, numbers)
    at = cost.samples_of_grids(fewest)  # of each cell
    price = np.stack([cost.extra_seconds(own, at, numbers) for own in cells])
    free = (price <= 0).sum(axis=1) - 1  # the place in numbers that the fewest samples pay for
    bought = free.copy()
    left = 60 * minutes * processes - cost.seconds(at)
    while True:
        gain = chances - chances[np.arange(len(groups)), bought][:, None]
        rate = np.where((price <= left) & (gain > 1e-6), gain / np.maximum(price, 1e-3), 0.0)
        if not rate.max() > 0:
            break
        group, number = divmod(int(rate.argmax()), len(numbers))
        left -= float(price[group, number])
        bought[group] = number
        at = cost.raised(cells[group], at, int(numbers[number]))
        for other in np.flatnonzero(has[:, cells[group].places].any(axis=1)):
            price[other] = cost.extra_seconds(cells[other], at, numbers)
    return SamplePlan(
        scale,
        [(group, int(numbers[own])) for group, own, least in zip(groups, bought, free, strict=True) if own > least],
        float(chances[np.arange(len(groups)), bought].sum()),
        60 * minutes * processes - left,
    )


def claim_cells(scale: Scale, pilot: Mapping[str, ClaimPilot]) -> list[ClaimCells]:
    """The claims that rows test, by the cells that decide them."""
    found: dict[tuple[tuple[str, ...], SampleRule], list[ClaimDemand]] = {}
    for demand in (each for paper in PAPERS for each in claim_demands(paper, scale)):
        rule = _rule(demand, pilot.get(demand.claim.id), scale)
        found.setdefault((demand.experiments, rule), []).append(demand)
    return [
        ClaimCells(tuple(own), experiments, cells, _most(cells, SETTINGS[scale].unread))
        for (experiments, cells), own in found.items()
    ]


def _most(cells: SampleRule, unread: int) -> int:
    return unread if any(task.startswith(FIXED_PLACES) for task in cells.tasks) else MOST


def _rule(demand: ClaimDemand, pilot: ClaimPilot | None, scale: Scale) -> SampleRule:
    """About the cells that decide the claim; about all of its experiments without a pilot."""
    if pilot is None:
        return SampleRule(0)
    points = [point for name in demand.experiments for point in experiment_points(scale)[name]]
    tasks = dict.fromkeys(str(each["task"]) for each in points if task_label(str(each["task"]), scale) in pilot.tasks)
    return SampleRule(0, tuple(tasks), pilot.policies, pilot.budgets)


def samples_of_claims(demands: Sequence[ClaimDemand], planned: PlannedSamples, scale: Scale) -> list[ClaimSamples]:
    """What each claim gets from the planned samples: those of the cell that has the fewest, of those that decide it."""
    pilot, points, found = stored_pilot(scale), experiment_points(scale), []
    for each in demands:
        rule = _rule(each, pilot.get(each.claim.id), scale)
        own = [planned.of(name, p) for name in each.experiments for p in points[name] if rule.holds_for(p)]
        samples = min(own, default=min(planned.fewest.values()))
        found.append(ClaimSamples(each, samples, detected_effect(each.cases, samples, each.alpha)))
    return found
