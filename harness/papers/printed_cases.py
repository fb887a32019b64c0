"""The cases of a claim as they stand in print: its inequalities, asked of the published numbers.

Numbers are in the units of our rows: scores in [0, 1], perplexities as nats per token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from harness.analysis.statistics import Floats
from harness.papers.claim_cases import ClaimCase, ScoreColumns, claim_cases
from harness.papers.claim_ledger import Claim, Comparison, MethodSpec
from harness.papers.published import our_model, presets, published_frame, row_metrics, task_labels
from harness.papers.table_layouts import layout

BLOCKS = {"32": ("blocked", 32), "64": ("blocked", 64), "128": ("blocked", 128), "256": ("blocked", 256)}
GEOMETRIC_MEAN = "rouge_geomean"  # BUZZ prints the mean of three ROUGE scores where it leaves out their own
COVERAGE = ("coverage_pct", "coverage_drop_pct")  # K-VEC's; ours is the column ``coverage`` of the rows
SHARES = {"points": 100.0, "percent": 100.0}  # what a unit is divided by


@dataclass(frozen=True, order=True)
class PrintedPlace:
    """Where a number stands: one cell of ours on one task, and the paper's metric. ``block_size`` in tokens."""

    model: str
    policy: str
    budget: str
    prompt: str  # empty where the paper has no blocks
    block_size: int
    task: str  # our label, or the paper's name of an average
    metric: str

    @property
    def cell(self) -> str:
        """Method and setting: ``keydiff 2048 blocked 128``; papers without blocks read the whole prompt at once."""
        return f"{self.policy} {self.budget} {self.prompt or 'one_shot'} {self.block_size}"


@dataclass(frozen=True)
class PrintedCases:
    """The cases of one comparison on one model. ``means`` (strata, cells); ``complete``: every number is printed."""

    model: str
    cases: list[ClaimCase]
    columns: ScoreColumns
    means: Floats
    complete: bool

    def effects(self) -> Floats:
        """(cases,): each inequality's printed margin, positive where the print agrees with the claim."""
        return np.array([float(case.measure(self.means)) for case in self.cases])


@cache
def numbers_in_print(paper: str) -> Mapping[PrintedPlace, float]:
    """Every printed score by its place; of several numbers in one place the first that the audit does not flag."""
    own = published_frame(paper)
    own = own[own["value"].notna() & (own["policy"] != "")]
    known = own["metric"].map(lambda metric: bool(row_metrics(metric)) or metric in (GEOMETRIC_MEAN, *COVERAGE))
    found: dict[PrintedPlace, float] = {}
    dense_perplexity = own[own["metric"] == "ppl"].groupby("our_model")["value"].first().to_dict()
    own = own[known & ~((own["metric"] == "ppl") & (own["policy"] == "dense") & (paper == "caote"))]
    for record in own.iloc[(own["flag"] != "").argsort(kind="stable")].to_dict("records"):
        line = {str(name): value for name, value in record.items()}
        value = _in_our_units(line, dense_perplexity.get(line["our_model"], math.nan))
        found.setdefault(_place(paper, line), value)
    for model, value in dense_perplexity.items() if paper == "caote" else ():
        found[PrintedPlace(str(model), "dense", "full", "", 0, "book_perplexity", "ppl_delta")] = math.log(value)
    return found


def _place(paper: str, line: Mapping[str, Any]) -> PrintedPlace:
    """The place of one line of the published frame."""
    given = layout(paper, line["table"])
    asked = given.ask if given else {}
    unit = {"tokens": "", "percent": "%", "none": ""}[line["budget_unit"]]
    words = dict(word.split("=", 1) for word in line["note"].split("; ") if word.count("=") == 1)
    by_words = [shares.get(words.get(name, ""), "") for name, shares in asked.get("budget_by", {}).items()]
    budget = "".join(by_words) or str(asked.get("budget", "")) or (line["budget"] + unit if line["budget"] else "full")
    prompt, size = BLOCKS.get(line["block_size"], ("one_shot" if line["block_size"] == "inf" else "", 0))
    if line["policy"] == "dense":
        budget, prompt, size = "full", "", 0
    named = line["task"] or str(asked.get("task", ""))
    labels = task_labels(paper, named)
    task = labels[0] if len(labels) == 1 else named
    metric = "coverage" if line["metric"] in COVERAGE else line["metric"]
    return PrintedPlace(line["our_model"], line["policy"], budget, prompt, size, task, metric)


def _in_our_units(line: Mapping[str, Any], dense_perplexity: float) -> float:
    """A perplexity, or a gap to the dense one, becomes nats per token."""
    value = float(line["value"])
    if line["metric"] == "ppl":
        return math.log(value)
    if line["metric"] == "ppl_delta":
        return math.log(dense_perplexity + value)
    if line["metric"] == "coverage_drop_pct":  # one sign of the table is a misprint: all are losses
        return 1 - abs(value) / 100
    return value / SHARES.get(str(line["unit"]), 1.0)


def printed_cases(
    claim: Claim, comparison: Comparison, numbers: Mapping[PrintedPlace, float] | None = None
) -> list[PrintedCases]:
    """The comparison on each model of the claim, where any of its numbers are printed; empty for figures.

    ``numbers`` instead of the printed ones; numbers of a part of a task stand at ``task#axis=value``.
    """
    if comparison.quantity:
        return []
    numbers = numbers_in_print(claim.paper) if numbers is None else numbers
    models = [our_model(each) for each in claim.models] or sorted({place.model for place in numbers})
    tasks = list(dict.fromkeys(each for task in comparison.task for each in task_labels(claim.paper, task)))
    tasks = [part for task in tasks for part in _parts(comparison, task, numbers)]
    metrics = (comparison.column,) if comparison.column else comparison.metric
    readings = [
        (tasks, metrics),
        (tasks, (GEOMETRIC_MEAN,) if len(metrics) > 1 else metrics),
        (list(comparison.task), metrics),
    ]
    found = []
    for model in models:
        own = [_cases_on(claim.paper, comparison, model, *reading, numbers) for reading in readings]
        # All cells from the same numbers: an average is not compared with a mean over other tasks.
        best = max(own, key=lambda each: (each.complete, each.means.shape[1]))
        if best.cases:
            found.append(best)
    return found


def _parts(comparison: Comparison, task: str, numbers: Mapping[PrintedPlace, float]) -> list[str]:
    """The task itself, or the parts of it that the comparison is about."""
    if comparison.only:
        return [f"{task}#{axis}={value}" for axis, value in comparison.only.items()]
    if comparison.split:
        return sorted({place.task for place in numbers if place.task.startswith(f"{task}#{comparison.split}=")})
    return [task]


def _cases_on(
    paper: str,
    comparison: Comparison,
    model: str,
    tasks: Sequence[str],
    metrics: Sequence[str],
    numbers: Mapping[PrintedPlace, float],
) -> PrintedCases:
    at: dict[tuple[MethodSpec, str], int] = {}
    cells: dict[str, list[float]] = {}
    complete = True
    for spec, budget in product(comparison.methods(), comparison.budgets):
        policies = presets(paper, spec.method, spec.variant)
        places = _cell_places(comparison, spec, spec.budget or budget, model, policies[0]) if policies else []
        values = [_looked_up(places, task, metrics, numbers) for task in tasks]
        name = places[-1].cell if places else ""
        if not values or any(map(math.isnan, values)):
            complete = False
            continue
        cells.setdefault(name, values)
        at[spec, spec.budget or budget] = list(cells).index(name)
    means = np.array(list(cells.values()), dtype=float).reshape(len(cells), len(tasks)).T
    columns = ScoreColumns(at, list(cells), list(tasks))
    return PrintedCases(model, claim_cases(comparison, columns) if cells else [], columns, means, complete)


def _cell_places(comparison: Comparison, spec: MethodSpec, budget: str, model: str, policy: str) -> list[PrintedPlace]:
    """Where a cell's number may stand, the task and the metric left open; papers without blocks name no regime."""
    if policy == "dense":
        return [PrintedPlace(model, policy, "full", "", 0, "", "")]
    prompt = spec.prompt or comparison.prompt
    size = (spec.block_size or comparison.block_size) if prompt == "blocked" else 0
    regimes = dict.fromkeys([("", 0), ("one_shot", 0), (prompt, size)] if prompt != "blocked" else [(prompt, size)])
    return [PrintedPlace(model, policy, budget, *regime, "", "") for regime in regimes]


def _looked_up(
    places: Sequence[PrintedPlace], task: str, metrics: Sequence[str], numbers: Mapping[PrintedPlace, float]
) -> float:
    """The printed number of one cell on one task, NaN where there is none; of several metrics the geometric mean."""
    values = []
    for metric in metrics:
        options = (replace(place, task=task, metric=metric) for place in places)
        values.append(next((numbers[place] for place in options if place in numbers), math.nan))
    return values[0] if len(values) == 1 else float(np.exp(np.mean(np.log(np.maximum(values, 1e-12)))))
