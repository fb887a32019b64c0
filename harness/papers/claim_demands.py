"""What a claim's test asks of a sweep on our models: the effect it wants to see and the spread it has to see it in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from harness.config.experiments import Point
from harness.papers import published
from harness.papers.claim_cases import ScoreColumns, claim_cases
from harness.papers.claim_ledger import Claim, Comparison, claims
from harness.papers.claim_power import CaseDemand, case_spread, floor_samples, level, samples_for_power
from harness.papers.printed_cases import printed_cases
from harness.papers.published import task_labels
from harness.papers.sweep_cost import experiment_of, experiment_points, label_of, sample_estimates

FIGURE_EFFECT = 0.1  # wanted where a claim rests on a figure without numbers: a tenth of the scale, which an eye sees
NO_EFFECT = 1e-9
POSITIONS = 3  # of the answer among the documents (conf/task/longbench_mini/multi_doc_qa.yaml)


@dataclass(frozen=True)
class WantedEffect:
    """In units of the claim's metric. ``source``: "stated", "printed" or "figure".

    ``contradicted``: the print itself has a case that fails, so that a faithful replication finds it failing.
    """

    value: float
    source: str
    contradicted: bool = False


@dataclass(frozen=True)
class ClaimDemand:
    """A claim that rows test at a scale. ``cases``: with the wanted effect; ``alpha``: the level of each of them.

    ``experiments``: what measures it; ``floor``: the fewest samples with which its test can reach the level.
    """

    claim: Claim
    wanted: WantedEffect
    experiments: tuple[str, ...]
    cases: tuple[CaseDemand, ...]
    alpha: float
    floor: int

    @property
    def widest(self) -> float:
        """The spread of the case that is hardest to see."""
        return max(each.spread for each in self.cases)

    @property
    def needed(self) -> int | None:
        """Samples for the effect that is wanted; None where no number would do."""
        return samples_for_power(self.cases, self.alpha)

    def seeing(self, effect: float) -> list[CaseDemand]:
        """Its cases with the same effect in each."""
        return [replace(each, effect=effect) for each in self.cases]


def wanted_effect(claim: Claim) -> WantedEffect:
    """The effect that the claim states, else the smallest printed one of its cases, else that of a figure."""
    printed = [
        float(effect)
        for comparison in claim.comparisons
        for found in printed_cases(claim, comparison)
        for effect in found.effects()
    ]
    contradicted = any(each < -NO_EFFECT for each in printed)
    sizes = [abs(each) for each in printed if abs(each) > NO_EFFECT]
    if claim.effect:
        return WantedEffect(claim.effect, "stated", contradicted)
    return WantedEffect(min(sizes), "printed", contradicted) if sizes else WantedEffect(FIGURE_EFFECT, "figure")


@cache
def claim_demands(paper: str, scale: published.Scale = "mini") -> list[ClaimDemand]:
    """The claims of a paper that rows of its experiments test at this scale."""
    points = experiment_points(scale)
    testable = [each for each in claims(paper) if each.comparisons and not each.of_one_model]
    found = []
    for claim in testable:
        experiments = tuple(name for item in claim.items if (name := experiment_of(paper, item)) in points)
        shapes = [
            shape
            for each in claim.comparisons
            if not each.quantity and (shape := _shape(claim, each, experiments, points, scale))
        ]
        if not shapes:
            continue
        alpha, wanted = level(testable), wanted_effect(claim)
        cases = tuple(replace(case, effect=wanted.value) for own, _ in shapes for case in own)
        floor = max(floor_samples(alpha, differing) for _, differing in shapes)
        if wanted.contradicted:  # one failing case decides, at the level of one out of all (Bonferroni)
            alpha, cases = alpha / len(cases), (max(cases, key=lambda case: case.spread),)
        found.append(ClaimDemand(claim, wanted, experiments, cases, alpha, floor))
    return found


def _shape(
    claim: Claim,
    comparison: Comparison,
    experiments: Sequence[str],
    points: Mapping[str, Sequence[Point]],
    scale: published.Scale,
) -> tuple[list[CaseDemand], float] | None:
    """The spreads of a comparison's cases, and how many of the tasks differ between two methods in one sample each.

    None where its experiments run none of its tasks, and for bytes, which do not vary.
    """
    if comparison.column not in ("", "coverage"):
        return None
    labels = [each for task in comparison.task for each in task_labels(claim.paper, task)]
    options = [str(point["task"]) for name in experiments for point in points[name]]
    run = {label for option in options if (label := task_label(option, scale))}
    tasks = published.proxy_tasks(labels, run, scale, claim.paper)
    if not tasks:
        return None
    known = [sample_estimates(scale)["spread"]["coverage" if comparison.column else task] for task in tasks]
    parts = POSITIONS if comparison.split or comparison.only else 1
    each_task = parts if comparison.split else 1
    strata = [f"{task} {part}" for task in tasks for part in range(each_task)]
    deviations = np.repeat([deviation for deviation, _ in known], each_task) * math.sqrt(parts)
    keys = dict.fromkeys(
        (spec, spec.budget or budget) for spec in comparison.methods() for budget in comparison.budgets
    )
    at = {key: number for number, key in enumerate(keys)}
    columns = ScoreColumns(at, [f"{spec} {budget}" for spec, budget in at], strata)
    # Scores at which no maximum is tied and no standard deviation is zero; the spreads hardly hang on them.
    means = 0.5 + 0.01 * np.add.outer(np.arange(len(strata)), -np.arange(len(at)) / len(at))
    # The share of tasks in which a method is the best moves in steps: it is planned as a difference on one task.
    one_task = float(np.sqrt((deviations**2).mean()))
    found = [
        CaseDemand(0.0, case_spread(case, means, deviations) or one_task, len(case.strata))
        for case in claim_cases(comparison, columns)
    ]
    differing = sum(share for _, share in known)
    return found, (differing / len(known) if comparison.per == "task" else differing) / parts


def task_label(option: str, scale: published.Scale) -> str:
    """The label of a task from its file in conf/task: the one of the spreads that begins it; empty for another."""
    return label_of(option, sample_estimates(scale)["spread"])
