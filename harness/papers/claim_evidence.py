"""Look up a claim's cells in our rows and test its cases; collect what could not be looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.papers import published
from harness.papers.cell_index import CellIndex, CellQuery, CellRows, NoCellError, ProtocolError, budget_proxies
from harness.papers.claim_cases import ScoreColumns, claim_cases
from harness.papers.claim_ledger import Claim, Comparison, MethodSpec
from harness.papers.claim_tests import ClaimResult, claim_results
from harness.papers.paired_bootstrap import Stratum, build_stratum
from harness.papers.published import TESTBED, our_model, presets, row_metrics, task_labels


@dataclass
class ClaimEvidence:
    """The results of a claim's cases, and what keeps them from being the paper's own comparison.

    ``missing`` and ``differing`` (protocols) are ends of sentences; ``notes``: what was taken for the paper's own
    setting, as "a for b".
    """

    results: list[ClaimResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # models of the claim without rows


@dataclass(frozen=True)
class ClaimMeasurement:
    """One cell on one task, and each metric of the comparison by sample. ``notes``: metrics taken for others."""

    cell: CellRows
    values: dict[str, pd.Series]
    notes: tuple[str, ...] = ()


def collect_evidence(claim: Claim, index: CellIndex, mini: bool, level: float = 0.95) -> ClaimEvidence:
    """Look up the claim's cells and test its cases; ``level`` is that of the intervals.

    ``mini``: the testbed is taken for the paper's models, and budgets of the same rank for the paper's budgets.
    """
    comparison = claim.comparison
    out = ClaimEvidence()
    if comparison is None:
        return out
    paper_models = [our_model(each) for each in claim.models]
    models = ([TESTBED] if TESTBED in index.models else index.models) if mini else (paper_models or index.models)
    for name in models:
        if name in index.models:
            _collect_for_model(claim, comparison, index, name, mini, level, out)
    if not mini and (absent := [name for name in paper_models if name not in index.models]):
        if not out.models and index.models:
            out.differing.append(
                f"model: rows are of {', '.join(index.models)}, the paper's is {', '.join(paper_models)}"
            )
        else:
            out.absent.extend(absent)
    if not index.models:
        policies = ", ".join(presets(claim.paper, each.method, each.variant)[0] for each in comparison.methods())
        out.missing.append(f"{policies} on {', '.join(_tasks(claim, comparison))}")
    return out


def _collect_for_model(
    claim: Claim, comparison: Comparison, index: CellIndex, name: str, mini: bool, level: float, out: ClaimEvidence
) -> None:
    tasks = _tasks(claim, comparison)
    here = index.tasks(name)
    covered = [task for task in tasks if (published.proxy_task(task, here) if mini else task in here)]
    measured = published.proxy_tasks(covered, here) if mini else covered
    lacking = [task for task in tasks if task not in covered]
    if replacing := [task for task in measured if task not in tasks]:
        out.notes.append(
            f"the tasks {_shortened(replacing)} for {_shortened([t for t in covered if t not in measured])}"
        )
    if lacking and mini and measured:
        out.notes.append(f"{len(covered)} of {len(tasks)} tasks")
    elif lacking:
        out.missing.append(f"{', '.join(lacking)} with {name}")
    if not measured:
        return
    queries = _cell_queries(claim, comparison, index, name, measured, mini, out)
    found = _measure_cells(claim, queries, comparison, index, name, measured, mini, out)
    if not found:
        return
    try:
        strata = _build_strata(comparison, [found[each] for each in found], measured)
    except ValueError as nothing:
        out.missing.append(str(nothing).rstrip("."))
        return
    at = {key: list(found).index(cell) for key, cell in queries.items() if cell in found}
    columns = ScoreColumns(at, _titles(list(found)), [each.name for each in strata])
    names = {each for metric in comparison.metric for each in row_metrics(metric)}
    bounded = not comparison.column and "nll" not in names
    if decided := claim_results(claim_cases(comparison, columns), strata, level, bounded):
        out.models.append(name)
        out.results.extend(decided)


def _shortened(names: Sequence[str], most: int = 2) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _tasks(claim: Claim, comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(each for task in comparison.task for each in task_labels(claim.paper, task)))


def _cell_queries(
    claim: Claim,
    comparison: Comparison,
    index: CellIndex,
    name: str,
    tasks: Sequence[str],
    mini: bool,
    out: ClaimEvidence,
) -> dict[tuple[MethodSpec, str], CellQuery]:
    """Every cell that the comparison needs, by method and the paper's budget."""
    names = {each: presets(claim.paper, each.method, each.variant) for each in comparison.methods()}
    measured_budget = {budget: budget for budget in comparison.ladder}
    if mini:
        evicting = [policies for policies in names.values() if policies[0] != "dense"]
        measured = index.ladder(name, tasks, evicting)
        by_rank = budget_proxies(comparison.ladder, measured)
        for budget in comparison.ladder:
            proxy = published.proxy_budget(claim.paper, budget)
            listed = proxy in measured and budget not in measured
            measured_budget[budget] = proxy if listed else by_rank[budget]
        compared = comparison.budgets_compared()
        if swapped := [
            f"{own} for {each}" for each, own in measured_budget.items() if own != each and each in compared
        ]:
            out.notes.append(f"budgets {', '.join(swapped)}")
    queries = {}
    for spec, policies in names.items():
        for budget in comparison.budgets:
            dense = policies[0] == "dense"
            prompt = spec.prompt or comparison.prompt
            blocks = (spec.block_size or comparison.block_size) if prompt == "blocked" else 0
            own = measured_budget[spec.budget or budget]
            queries[spec, spec.budget or budget] = (
                CellQuery(policies) if dense else CellQuery(policies, own, prompt, blocks, comparison.budget_of)
            )
    return queries


def _measure_cells(
    claim: Claim,
    queries: Mapping[tuple[MethodSpec, str], CellQuery],
    comparison: Comparison,
    index: CellIndex,
    name: str,
    tasks: Sequence[str],
    mini: bool,
    out: ClaimEvidence,
) -> dict[CellQuery, list[ClaimMeasurement]]:
    """The measurements of each cell that all tasks have, task by task."""
    sizes = {cell.block_size for cell in queries.values() if cell.block_size}
    exact_blocks = not mini or len(sizes) > 1
    found = {}
    for cell in dict.fromkeys(queries.values()):
        try:
            proxy = published.proxy_block_size(claim.paper, cell.block_size) if mini else 0
            measured = [
                _measure_cell(comparison, index.find(cell, name, task, exact_blocks, proxy), f"{cell} on {task}", mini)
                for task in tasks
            ]
            _note_proxies(cell, [each.cell for each in measured], mini, out)
            out.notes.extend(note for each in measured for note in each.notes)
            found[cell] = measured
        except NoCellError as lacking:
            out.missing.append(str(lacking))
        except ProtocolError as other:
            out.differing.append(str(other))
    return found


def _note_proxies(query: CellQuery, found: Sequence[CellRows], mini: bool, out: ClaimEvidence) -> None:
    """Note what was taken for the paper's own setting. Raises `ProtocolError` where nothing may be taken for it."""
    if any(cell.synthetic for cell in found):
        if not mini:
            raise ProtocolError(f"data: the prompts of {query} are synthetic (data=fixture), the paper's are not")
        out.notes.append("synthetic prompts (data=fixture) for the data set's")
    sizes = sorted({cell.block_size for cell in found})
    if query.block_size and sizes != [query.block_size]:
        out.notes.append(f"blocks of {', '.join(map(str, sizes))} for {query.block_size}")
    if readings := sorted({cell.budget_of for cell in found if query.budget_of not in ("", cell.budget_of)} - {""}):
        sentence = f"shares of {', '.join(readings)} for shares of {query.budget_of}"
        if not mini:
            raise ProtocolError(f"budget_of: {query} was run with {sentence}")
        out.notes.append(sentence)


def _titles(cells: Sequence[CellQuery]) -> list[str]:
    """The cells' names, with the prompt regime where they differ in it."""
    several = len({cell.regime for cell in cells if not cell.dense}) > 1
    return [f"{cell} ({cell.regime})" if several and not cell.dense else str(cell) for cell in cells]


def _measure_cell(comparison: Comparison, cell: CellRows, what: str, mini: bool) -> ClaimMeasurement:
    """The comparison's metrics of one cell. Raises `NoCellError` for a metric or axis that it does not have."""
    for axis in filter(None, (comparison.split, *comparison.only)):
        if f"axis_{axis}" not in cell.rows:
            raise NoCellError(f"the axis {axis} of {what}")
    if comparison.column:
        summed = cell.samples[comparison.column.split("+")].astype(float).sum(axis=1)
        return ClaimMeasurement(cell, {comparison.column: summed})
    values, notes, lacking = {}, [], []
    for metric in comparison.metric:
        own = [cell.metric if each == "first" else each for each in row_metrics(metric)]
        options = [*own, *(published.proxy_metrics(metric) if mini else ())]
        scored = next((each for each in options if each in cell.scores), "")
        if not scored:
            lacking.append(" or ".join(options))
            continue
        values[metric] = cell.scores[scored]
        if scored not in own:
            notes.append(f"the metric {scored} for {metric}")
    if lacking and not (mini and values):
        raise NoCellError(f"the metric {lacking[0]} of {what}")
    if lacking:
        notes.append(f"{', '.join(values)} alone for the mean of {', '.join(comparison.metric)}")
    return ClaimMeasurement(cell, values, tuple(notes))


def _build_strata(
    comparison: Comparison, cells: Sequence[list[ClaimMeasurement]], tasks: Sequence[str]
) -> list[Stratum]:
    """One stratum per task, or per value of the axis ``split``."""
    out = []
    for i, task in enumerate(tasks):
        one = cells[0][i].cell.samples
        for axis, value in comparison.only.items():
            one = one[one[f"axis_{axis}"] == value]
        values = [cell[i].values for cell in cells]
        # Bytes and coverage are averages over samples, whatever a score's weight is.
        weights = one["weight"].astype(float) if not comparison.column else pd.Series(1.0, index=one.index)
        groups: Iterable[tuple[str, pd.Index]] = [(task, one.index)]
        if comparison.split:
            groups = [(f"{comparison.split}={v}", part.index) for v, part in one.groupby(f"axis_{comparison.split}")]
        out += [build_stratum(title, values, weights.loc[own], one.loc[own, "document"]) for title, own in groups]
    return out
