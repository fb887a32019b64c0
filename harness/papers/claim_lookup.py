"""The search for a claim's cells in our rows: which cells, their scores by sample, and what stands in for what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import pandas as pd

from harness.papers import published
from harness.papers.cell_index import CellIndex, CellQuery, CellRows, NoCellError, ProtocolError, budget_proxies
from harness.papers.claim_ledger import Claim, Comparison, MethodSpec
from harness.papers.paired_bootstrap import Stratum, build_stratum
from harness.papers.published import FULL, Scale, presets, task_labels
from harness.papers.text_metrics import paper_scores


@dataclass
class LookupNotes:
    """What keeps the cells that were found from being the paper's own.

    ``missing`` and ``differing`` (protocols) are ends of sentences; ``notes``: what was taken for the paper's own
    setting, as "a for b".
    """

    missing: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ClaimMeasurement:
    """One cell on one task, and each metric of the comparison by sample. ``notes``: metrics taken for others."""

    cell: CellRows
    values: dict[str, pd.Series]
    notes: tuple[str, ...] = ()


def cell_queries(
    claim: Claim,
    comparison: Comparison,
    index: CellIndex,
    name: str,
    tasks: Sequence[str],
    scale: Scale,
    out: LookupNotes,
) -> dict[tuple[MethodSpec, str], CellQuery]:
    """Every cell that the comparison needs, by method and the paper's budget."""
    names = {each: presets(claim.paper, each.method, each.variant) for each in comparison.methods()}
    measured_budget = {budget: budget for budget in comparison.ladder}
    if scale != FULL:
        evicting = [policies for policies in names.values() if policies[0] != "dense"]
        measured = index.ladder(name, tasks, evicting)
        by_rank = budget_proxies(comparison.ladder, measured)
        for budget in comparison.ladder:
            proxy = published.proxy_budget(claim.paper, budget, scale)
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


@dataclass(frozen=True)
class CellLookup:
    """The search for the measurements of some cells of one model."""

    claim: Claim
    comparison: Comparison
    index: CellIndex
    model: str
    scale: Scale
    queries: tuple[CellQuery, ...]

    def measure(
        self, tasks: Sequence[str], out: LookupNotes
    ) -> tuple[list[str], dict[CellQuery, list[ClaimMeasurement]]]:
        """The tasks that count, and the measurements of each cell that all of them have, task by task.

        At a scale of our own a task that lacks cells which another has is left out: an average there is that of its
        tasks which were measured.
        """
        found: dict[tuple[CellQuery, str], ClaimMeasurement] = {}
        errors: dict[tuple[CellQuery, str], NoCellError | ProtocolError] = {}
        for key in product(self.queries, tasks):
            try:
                found[key] = self._measure_one(*key, out)
            except (NoCellError, ProtocolError) as lacking:
                errors[key] = lacking
        counts = {task: sum((query, task) in found for query in self.queries) for task in tasks}
        kept = [task for task in tasks if self.scale == FULL or counts[task] == max(counts.values())]
        if len(kept) < len(tasks):
            out.notes.append(f"{len(kept)} of {len(tasks)} measured tasks")
        for (_, task), error in errors.items():
            if task in kept:
                (out.differing if isinstance(error, ProtocolError) else out.missing).append(str(error))
        whole = {query: [found[query, task] for task in kept if (query, task) in found] for query in self.queries}
        whole = {query: own for query, own in whole.items() if len(own) == len(kept)}
        out.notes.extend(note for own in whole.values() for each in own for note in each.notes)
        return kept, whole

    def _measure_one(self, query: CellQuery, task: str, out: LookupNotes) -> ClaimMeasurement:
        sizes = {each.block_size for each in self.queries if each.block_size}
        exact_blocks = self.scale == FULL or len(sizes) > 1
        proxy = published.proxy_block_size(self.claim.paper, query.block_size, self.scale)
        cell = self.index.find(query, self.model, task, exact_blocks, proxy)
        _note_proxies(query, [cell], self.scale, out)
        return measure_cell(self.comparison, cell, f"{query} on {task}", self.scale)


def _note_proxies(query: CellQuery, found: Sequence[CellRows], scale: Scale, out: LookupNotes) -> None:
    """Note what was taken for the paper's own setting. Raises `ProtocolError` where nothing may be taken for it."""
    if any(cell.synthetic for cell in found):
        if scale == FULL:
            raise ProtocolError(f"data: the prompts of {query} are synthetic (data=fixture), the paper's are not")
        out.notes.append("synthetic prompts (data=fixture) for the data set's")
    sizes = sorted({cell.block_size for cell in found})
    if query.block_size and sizes != [query.block_size]:
        out.notes.append(f"blocks of {', '.join(map(str, sizes))} for {query.block_size}")
    if readings := sorted({cell.budget_of for cell in found if query.budget_of not in ("", cell.budget_of)} - {""}):
        sentence = f"shares of {', '.join(readings)} for shares of {query.budget_of}"
        if scale == FULL:
            raise ProtocolError(f"budget_of: {query} was run with {sentence}")
        out.notes.append(sentence)


def cell_titles(cells: Sequence[CellQuery]) -> list[str]:
    """The cells' names, with the prompt regime where they differ in it."""
    several = len({cell.regime for cell in cells if not cell.dense}) > 1
    return [f"{cell} ({cell.regime})" if several and not cell.dense else str(cell) for cell in cells]


def measure_cell(comparison: Comparison, cell: CellRows, what: str, scale: Scale) -> ClaimMeasurement:
    """The comparison's metrics of one cell. Raises `NoCellError` for a metric or axis that it does not have."""
    for axis in filter(None, (comparison.split, *comparison.only)):
        if f"axis_{axis}" not in cell.rows or cell.rows[f"axis_{axis}"].isna().all():
            raise NoCellError(f"the axis {axis} of {what}")
    if comparison.column:
        summed = cell.samples[comparison.column.split("+")].astype(float).sum(axis=1)
        return ClaimMeasurement(cell, {comparison.column: summed})
    values, notes, lacking = {}, [], []
    for metric in comparison.metric:
        try:
            values[metric], stands_in = paper_scores(cell, metric, scale)
        except NoCellError as absent:
            lacking.append(str(absent))
            continue
        notes += [f"the metric {stands_in}"] if stands_in else []
    if lacking and (scale == FULL or not values):
        raise NoCellError(f"the metric {lacking[0]} of {what}")
    if lacking:
        notes.append(f"{', '.join(values)} alone for the mean of {', '.join(comparison.metric)}")
    return ClaimMeasurement(cell, values, tuple(notes))


def build_strata(
    comparison: Comparison,
    cells: Sequence[list[ClaimMeasurement]],
    tasks: Sequence[str],
    needed: Sequence[int] | None = None,
) -> list[Stratum]:
    """One stratum per task, or per value of the axis ``split``; of the samples of all cells, or the ``needed`` ones."""
    places = range(len(cells)) if needed is None else needed
    out = []
    for i, task in enumerate(tasks):
        one = cells[places[0]][i].cell.samples
        for axis, value in comparison.only.items():
            one = one[one[f"axis_{axis}"] == value]
        values = [cell[i].values for cell in cells]
        # Bytes and coverage are averages over samples, whatever a score's weight is.
        weights = one["weight"].astype(float) if not comparison.column else pd.Series(1.0, index=one.index)
        groups: Iterable[tuple[str, pd.Index]] = [(task, one.index)]
        if comparison.split:
            groups = [(f"{comparison.split}={v}", part.index) for v, part in one.groupby(f"axis_{comparison.split}")]
        out += [
            build_stratum(title, values, weights.loc[own], one.loc[own, "document"], needed) for title, own in groups
        ]
    return out


def shortened(names: Sequence[str], most: int = 2) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def claim_tasks(claim: Claim, comparison: Comparison) -> list[str]:
    """Labels of our tasks that the comparison is about, each once."""
    return list(dict.fromkeys(each for task in comparison.task for each in task_labels(claim.paper, task)))
