"""Look up a claim's cells in our rows and test its cases; collect what could not be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pandas as pd

from harness.papers import published
from harness.papers.cell_index import CellIndex, CellQuery, CellRows, NoCellError
from harness.papers.claim_cases import ClaimCase, ScoreColumns, claim_cases
from harness.papers.claim_ledger import Claim, Comparison
from harness.papers.claim_lookup import (
    CellLookup,
    ClaimMeasurement,
    LookupNotes,
    build_strata,
    cell_queries,
    cell_titles,
    claim_tasks,
    measure_cell,
    shortened,
)
from harness.papers.claim_measurements import Observations
from harness.papers.claim_tests import ClaimResult, claim_results
from harness.papers.dense_gate import dense_gate, nothing_evicted, tied_at_an_end
from harness.papers.paired_bootstrap import Stratum, build_stratum, resample
from harness.papers.published import FULL, Scale, our_model, presets, row_metrics


@dataclass
class ClaimEvidence(LookupNotes):
    """The results of a claim's cases. ``flat``: where nothing can differ, and why ("few_shot: all at 1.00").

    ``cells``: of each result of rows, those that it compares.
    """

    results: list[ClaimResult] = field(default_factory=list)
    cells: list[list[CellRows]] = field(default_factory=list)
    flat: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # models of the claim without rows
    unit: str = "samples"
    exact: bool = False  # computed and not measured: no test is needed


class ClaimObservations(Protocol):
    """What claims are tested on beside rows: `harness.papers.claim_measurements.Measurements`."""

    def observations(self, paper: str, comparison: Comparison) -> Observations:
        """The columns of the comparison's quantity. Raises `NoCellError` where nothing is stored."""


def collect_evidence(
    claim: Claim, index: CellIndex, scale: Scale, level: float = 0.95, beside: ClaimObservations | None = None
) -> ClaimEvidence:
    """Look up the claim's cells and test its cases; ``level`` is that of the intervals.

    At a scale of our own one model is taken for the paper's models, and budgets of the same rank for its budgets.
    ``beside``: quantities that are no scores of samples; without it claims about them lack their measurements.
    """
    out = ClaimEvidence()
    if claim.of_one_model and scale != FULL:
        out.differing.append("models: it tells models of the paper apart, and one model stands for all of them here")
        return out
    for comparison in claim.comparisons:
        if comparison.quantity:
            _collect_beside(claim.paper, comparison, beside, level, out)
        else:
            _collect_of_rows(claim, comparison, index, scale, level, out)
    return out


def _collect_of_rows(
    claim: Claim, comparison: Comparison, index: CellIndex, scale: Scale, level: float, out: ClaimEvidence
) -> None:
    paper_models = [our_model(each) for each in claim.models]
    if scale == FULL:
        models = paper_models or index.models
    else:
        models = [own] if (own := published.model_of(scale)) in index.models else index.models
    for name in models:
        if name in index.models:
            _collect_for_model(claim, comparison, index, name, scale, level, out)
    if scale == FULL and (absent := [name for name in paper_models if name not in index.models]):
        if not out.models and index.models:
            out.differing.append(
                f"model: rows are of {', '.join(index.models)}, the paper's is {', '.join(paper_models)}"
            )
        else:
            out.absent.extend(absent)
    if not index.models:
        policies = ", ".join(presets(claim.paper, each.method, each.variant)[0] for each in comparison.methods())
        out.missing.append(f"{policies} on {', '.join(claim_tasks(claim, comparison))}")


def _collect_beside(
    paper: str, comparison: Comparison, beside: ClaimObservations | None, level: float, out: ClaimEvidence
) -> None:
    """Test a comparison of columns of a quantity: its units (prompts, rounds) are the clusters."""
    if beside is None:
        out.missing.append(f"the quantity {comparison.quantity}")
        return
    try:
        found = beside.observations(paper, comparison)
        named = [each.method for each in comparison.methods()]
        if lacking := [name for name in named if name not in found.columns]:
            raise NoCellError(f"{', '.join(lacking)} in the quantity {comparison.quantity}")
        own = {name: found.columns[name].dropna() for name in dict.fromkeys(named)}
        units = next(iter(own.values())).index
        one = pd.Series(1.0, index=units)
        stratum = build_stratum(
            comparison.quantity, [{comparison.quantity: each} for each in own.values()], one, pd.Series("", index=units)
        )
    except NoCellError as lacking_rows:
        out.missing.append(str(lacking_rows))
        return
    except ValueError as nothing:
        out.missing.append(str(nothing).rstrip("."))
        return
    out.notes.extend(found.notes)
    out.unit, out.exact = found.unit, found.exact
    # A quantity has one value a unit for each column, whatever budgets the paper compares elsewhere.
    alone = replace(comparison, budgets=("",))
    at = {(each, each.budget): list(own).index(each.method) for each in comparison.methods()}
    columns = ScoreColumns(at, list(own), [stratum.name])
    cases = claim_cases(alone, columns)
    results = _exact_results(cases, stratum) if found.exact else claim_results(cases, [stratum], level, False)
    out.results.extend(results)
    out.cells.extend([] for _ in results)


def _collect_for_model(
    claim: Claim, comparison: Comparison, index: CellIndex, name: str, scale: Scale, level: float, out: ClaimEvidence
) -> None:
    tasks = claim_tasks(claim, comparison)
    # The dense score of a task alone must not keep the task that stands in for it from being used.
    here = index.tasks(name, compared=scale != FULL)
    covered = [task for task in tasks if published.proxy_task(task, here, scale, claim.paper)]
    measured = published.proxy_tasks(covered, here, scale, claim.paper)
    lacking = [task for task in tasks if task not in covered]
    if replacing := [task for task in measured if task not in tasks]:
        out.notes.append(f"the tasks {shortened(replacing)} for {shortened([t for t in covered if t not in measured])}")
    if lacking and scale != FULL and measured:
        out.notes.append(f"{len(covered)} of {len(tasks)} tasks")
    elif lacking:
        out.missing.append(f"{', '.join(lacking)} with {name}")
    measured = _open_tasks(comparison, index, name, measured, scale, out)
    if not measured:
        return
    queries = cell_queries(claim, comparison, index, name, measured, scale, out)
    lookup = CellLookup(claim, comparison, index, name, scale, tuple(dict.fromkeys(queries.values())))
    measured, found = lookup.measure(measured, out)
    if not found:
        return
    try:
        strata = build_strata(comparison, [found[each] for each in found], measured)
    except ValueError as nothing:
        out.missing.append(str(nothing).rstrip("."))
        return
    at = {key: list(found).index(cell) for key, cell in queries.items() if cell in found}
    columns = ScoreColumns(at, cell_titles(list(found)), [each.name for each in strata])
    names = {each for metric in comparison.metric for each in row_metrics(metric)}
    bounded = not comparison.column and "nll" not in names
    cells = list(found.values())
    cases = _cases_with_contrast(claim_cases(comparison, columns), cells, columns, bounded, out)
    used = [_cells_compared(case, cells, bool(comparison.split)) for case in cases]
    for places in _with_the_same_samples(used):
        same = [cases[place] for place in places]
        needed = sorted({column for case in same for column in case.columns})
        decided = claim_results(same, build_strata(comparison, cells, measured, needed), level, bounded)
        out.results.extend(decided)
        out.cells.extend(used[place] for place in places)
    if cases:
        out.models.extend([] if name in out.models else [name])


def _cells_compared(case: ClaimCase, cells: Sequence[list[ClaimMeasurement]], split: bool) -> list[CellRows]:
    """The cells of a case, on the tasks that it is about; ``split``: strata are not tasks but parts of one."""
    return [
        each.cell for column in case.columns for task, each in enumerate(cells[column]) if split or task in case.strata
    ]


def _with_the_same_samples(used: Sequence[list[CellRows]]) -> list[list[int]]:
    """Cases in groups, by the cells of each: one is tested on all samples that its own cells share.

    Some cells have more samples than others. They are the first ones of a task, so equal numbers are the same samples.
    """
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for place, own in enumerate(used):
        fewest: dict[str, int] = {}
        for cell in own:
            fewest[cell.task] = min(len(cell.samples), fewest.get(cell.task, len(cell.samples)))
        groups.setdefault(tuple(sorted(fewest.items())), []).append(place)
    return list(groups.values())


def _open_tasks(
    comparison: Comparison, index: CellIndex, name: str, tasks: Sequence[str], scale: Scale, out: ClaimEvidence
) -> list[str]:
    """The tasks on which dense is clearly above the floor; all of them where the comparison is not about scores."""
    if comparison.column or "ppl" in comparison.metric or "ppl_delta" in comparison.metric:
        return list(tasks)
    kept = []
    for task in tasks:
        try:
            cell = index.find(CellQuery(("dense",)), name, task, exact_blocks=False)
            metric, scores = next(iter(measure_cell(comparison, cell, f"dense on {task}", scale).values.items()))
        except NoCellError:
            kept.append(task)  # without dense nothing can be said of the task; the comparison itself may still stand
            continue
        gate = dense_gate(cell, scores, metric)
        if gate.is_open:
            kept.append(task)
        else:
            out.flat.append(f"{task}: {gate.sentence}")
    return kept


def _cases_with_contrast(
    cases: Sequence[ClaimCase],
    measured: Sequence[list[ClaimMeasurement]],
    columns: ScoreColumns,
    bounded: bool,
    out: ClaimEvidence,
) -> list[ClaimCase]:
    """The cases whose cells can differ; why the others cannot is noted."""
    left = []
    for case in cases:
        own = [each for column in case.columns for each in measured[column]]
        evicting = [each.cell for each in own if each.cell.policy != "dense"]
        tied = tied_at_an_end([values for each in own for values in each.values.values()]) if bounded else ""
        if why := ("nothing was evicted" if nothing_evicted(evicting) else tied):
            out.flat.append(f"{', '.join(dict.fromkeys(columns.names[column] for column in case.columns))}: {why}")
        else:
            left.append(case)
    return left


def _exact_results(cases: Sequence[ClaimCase], stratum: Stratum) -> list[ClaimResult]:
    """Cases of values that are computed: no interval, and certainty on either side."""
    once = resample([stratum]).once
    out = []
    for case in cases:
        estimate = float(case.measure(once))
        holds = estimate > 0
        p_for, p_against = (0.0, 1.0) if holds else (1.0, 0.0)
        out.append(ClaimResult(case.label, estimate, estimate, estimate, 0.0, stratum.samples, p_for, p_against))
    return out
