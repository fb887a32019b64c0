"""What rows say about one claim: its cases with estimates, intervals and p-values, and what could not be looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.papers import published
from harness.papers.claim_ledger import Claim, Comparison, Spec
from harness.papers.claim_tests import Columns, cases
from harness.papers.comparisons import Stratum, ClaimResult, findings, stratum
from harness.papers.published import TESTBED, labels, metrics, model, presets
from harness.papers.row_index import CellQuery, CellRows, MissingError, ProtocolError, RowIndex, stand_ins


@dataclass
class ClaimEvidence:
    """``missing`` and ``differing`` are sentences' ends; ``notes`` say what stands in for the paper's own setting."""

    findings: list[ClaimResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # models of the claim without rows


@dataclass(frozen=True)
class ClaimMeasurement:
    """One cell on one task, and each metric of the comparison by sample. ``notes``: metrics that stand for others."""

    cell: CellRows
    values: dict[str, pd.Series]
    notes: tuple[str, ...] = ()


def evidence(claim: Claim, shelf: RowIndex, mini: bool, level: float = 0.95) -> ClaimEvidence:
    """Look up and compare. ``mini``: the testbed stands for the paper's models, ranks of budgets for budgets."""
    asked = claim.comparison
    out = ClaimEvidence()
    if asked is None:
        return out
    wanted = [model(each) for each in claim.models]
    here = ([TESTBED] if TESTBED in shelf.models else shelf.models) if mini else (wanted or shelf.models)
    for name in here:
        if name in shelf.models:
            _of_model(claim, asked, shelf, name, mini, level, out)
    if not mini and (absent := [name for name in wanted if name not in shelf.models]):
        if not out.models and shelf.models:
            out.differing.append(f"model: rows are of {', '.join(shelf.models)}, the paper's is {', '.join(wanted)}")
        else:
            out.absent.extend(absent)
    if not shelf.models:
        policies = ", ".join(presets(claim.paper, each.method, each.variant)[0] for each in asked.specs())
        out.missing.append(f"{policies} on {', '.join(_tasks(claim, asked))}")
    return out


def _of_model(
    claim: Claim, asked: Comparison, shelf: RowIndex, name: str, mini: bool, level: float, out: ClaimEvidence
) -> None:
    tasks = _tasks(claim, asked)
    here = shelf.tasks(name)
    covered = [task for task in tasks if (published.task(task, here) if mini else task in here)]
    measured = published.tasks(covered, here) if mini else covered
    lacking = [task for task in tasks if task not in covered]
    if replacing := [task for task in measured if task not in tasks]:
        out.notes.append(f"the tasks {_few(replacing)} for {_few([t for t in covered if t not in measured])}")
    if lacking and mini and measured:
        out.notes.append(f"{len(covered)} of {len(tasks)} tasks")
    elif lacking:
        out.missing.append(f"{', '.join(lacking)} with {name}")
    if not measured:
        return
    wanted = _wanted(claim, asked, shelf, name, measured, mini, out)
    found = _columns(claim, wanted, asked, shelf, name, measured, mini, out)
    if not found:
        return
    try:
        strata = _strata(asked, [found[each] for each in found], measured)
    except ValueError as nothing:
        out.missing.append(str(nothing).rstrip("."))
        return
    at = {key: list(found).index(cell) for key, cell in wanted.items() if cell in found}
    columns = Columns(at, _titles(list(found)), [each.name for each in strata])
    bounded = not asked.column and "nll" not in {each for metric in asked.metric for each in metrics(metric)}
    if decided := findings(cases(asked, columns), strata, level, bounded):
        out.models.append(name)
        out.findings.extend(decided)


def _few(names: Sequence[str], most: int = 2) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _tasks(claim: Claim, asked: Comparison) -> list[str]:
    return list(dict.fromkeys(each for task in asked.task for each in labels(claim.paper, task)))


def _wanted(
    claim: Claim, asked: Comparison, shelf: RowIndex, name: str, tasks: Sequence[str], mini: bool, out: ClaimEvidence
) -> dict[tuple[Spec, str], CellQuery]:
    """Every cell that the comparison needs, under the method and the paper's budget that ask for it."""
    names = {each: presets(claim.paper, each.method, each.variant) for each in asked.specs()}
    stands_for = {budget: budget for budget in asked.ladder}
    if mini:
        evicting = [policies for policies in names.values() if policies[0] != "dense"]
        here = shelf.ladder(name, tasks, evicting)
        by_rank = stand_ins(asked.ladder, here)
        stands_for = {
            each: own if (own := published.budget(claim.paper, each)) in here and each not in here else by_rank[each]
            for each in asked.ladder
        }
        if swapped := [
            f"{there} for {here}" for here, there in stands_for.items() if here != there and here in asked.asked_at()
        ]:
            out.notes.append(f"budgets {', '.join(swapped)}")
    wanted = {}
    for spec, policies in names.items():
        for budget in asked.budgets:
            dense = policies[0] == "dense"
            prompt = spec.prompt or asked.prompt
            blocks = (spec.block_size or asked.block_size) if prompt == "blocked" else 0
            own = stands_for[spec.budget or budget]
            wanted[spec, spec.budget or budget] = (
                CellQuery(policies) if dense else CellQuery(policies, own, prompt, blocks, asked.budget_of)
            )
    return wanted


def _columns(
    claim: Claim,
    wanted: Mapping[tuple[Spec, str], CellQuery],
    asked: Comparison,
    shelf: RowIndex,
    name: str,
    tasks: Sequence[str],
    mini: bool,
    out: ClaimEvidence,
) -> dict[CellQuery, list[ClaimMeasurement]]:
    """For each cell that all tasks have: what was measured, task by task."""
    sizes = {cell.block_size for cell in wanted.values() if cell.block_size}
    exact_blocks = not mini or len(sizes) > 1
    found = {}
    for cell in dict.fromkeys(wanted.values()):
        try:
            stand_in = published.block_size(claim.paper, cell.block_size) if mini else 0
            measured = [
                _measured(asked, shelf.find(cell, name, task, exact_blocks, stand_in), f"{cell} on {task}", mini)
                for task in tasks
            ]
            _note_stand_ins(cell, [each.cell for each in measured], mini, out)
            out.notes.extend(note for each in measured for note in each.notes)
            found[cell] = measured
        except MissingError as lacking:
            out.missing.append(str(lacking))
        except ProtocolError as other:
            out.differing.append(str(other))
    return found


def _note_stand_ins(wanted: CellQuery, found: Sequence[CellRows], mini: bool, out: ClaimEvidence) -> None:
    """What was taken for the paper's own setting. Raises `ProtocolError` for what may stand for nothing."""
    if any(cell.synthetic for cell in found):
        if not mini:
            raise ProtocolError(f"data: the prompts of {wanted} are synthetic (data=fixture), the paper's are not")
        out.notes.append("synthetic prompts (data=fixture) for the data set's")
    sizes = sorted({cell.block_size for cell in found})
    if wanted.block_size and sizes != [wanted.block_size]:
        out.notes.append(f"blocks of {', '.join(map(str, sizes))} for {wanted.block_size}")
    if readings := sorted({cell.budget_of for cell in found if wanted.budget_of not in ("", cell.budget_of)} - {""}):
        sentence = f"shares of {', '.join(readings)} for shares of {wanted.budget_of}"
        if not mini:
            raise ProtocolError(f"budget_of: {wanted} was run with {sentence}")
        out.notes.append(sentence)


def _titles(cells: Sequence[CellQuery]) -> list[str]:
    """What the cells are called; the regime is named where they differ in it."""
    several = len({cell.regime for cell in cells if not cell.dense}) > 1
    return [f"{cell} ({cell.regime})" if several and not cell.dense else str(cell) for cell in cells]


def _measured(asked: Comparison, cell: CellRows, what: str, mini: bool) -> ClaimMeasurement:
    """The comparison's metrics of one cell. Raises `MissingError` for a metric or axis that it does not have."""
    for axis in filter(None, (asked.split, *asked.only)):
        if f"axis_{axis}" not in cell.rows:
            raise MissingError(f"the axis {axis} of {what}")
    if asked.column:
        return ClaimMeasurement(cell, {asked.column: cell.samples[asked.column.split("+")].astype(float).sum(axis=1)})
    values, notes, lacking = {}, [], []
    for metric in asked.metric:
        own = [cell.metric if each == "first" else each for each in metrics(metric)]
        options = [*own, *(published.stand_in_metrics(metric) if mini else ())]
        scored = next((each for each in options if each in cell.scores), "")
        if not scored:
            lacking.append(" or ".join(options))
            continue
        values[metric] = cell.scores[scored]
        if scored not in own:
            notes.append(f"the metric {scored} for {metric}")
    if lacking and not (mini and values):
        raise MissingError(f"the metric {lacking[0]} of {what}")
    if lacking:
        notes.append(f"{', '.join(values)} alone for the mean of {', '.join(asked.metric)}")
    return ClaimMeasurement(cell, values, tuple(notes))


def _strata(asked: Comparison, cells: Sequence[list[ClaimMeasurement]], tasks: Sequence[str]) -> list[Stratum]:
    """One stratum for each task, or for each value of the axis that is told apart."""
    out = []
    for place, task in enumerate(tasks):
        one = cells[0][place].cell.samples
        for axis, value in asked.only.items():
            one = one[one[f"axis_{axis}"] == value]
        values = [cell[place].values for cell in cells]
        # Bytes and coverage are averages over samples, whatever a score's weight is.
        weights = one["weight"].astype(float) if not asked.column else pd.Series(1.0, index=one.index)
        groups: Iterable[tuple[str, pd.Index]] = [(task, one.index)]
        if asked.split:
            groups = [(f"{asked.split}={v}", part.index) for v, part in one.groupby(f"axis_{asked.split}")]
        out += [stratum(title, values, weights.loc[own], one.loc[own, "document"]) for title, own in groups]
    return out
