"""What rows say about one claim: its cases with estimates, intervals and p-values, and what could not be looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.published import Claim, Comparison, Spec
from harness.published.names import labels, metrics, model, presets
from harness.verdicts.cases import Columns, cases
from harness.verdicts.findings import Finding, findings
from harness.verdicts.paired import Stratum, stratum
from harness.verdicts.shelf import Cell, MissingError, ProtocolError, Shelf, Wanted, stand_ins

TESTBED = "testbed"


@dataclass
class Evidence:
    """``missing`` and ``differing`` are sentences' ends; ``notes`` say what stands in for the paper's own setting."""

    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # models of the claim without rows


@dataclass(frozen=True)
class Measured:
    """One cell on one task, and each metric of the comparison by sample."""

    cell: Cell
    values: dict[str, pd.Series]


def evidence(claim: Claim, shelf: Shelf, mini: bool, level: float = 0.95) -> Evidence:
    """Look up and compare. ``mini``: the testbed stands for the paper's models, ranks of budgets for budgets."""
    asked = claim.comparison
    out = Evidence()
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
    claim: Claim, asked: Comparison, shelf: Shelf, name: str, mini: bool, level: float, out: Evidence
) -> None:
    tasks = _tasks(claim, asked)
    measured = [task for task in tasks if task in shelf.tasks(name)]
    lacking = [task for task in tasks if task not in measured]
    if lacking and mini and measured:
        out.notes.append(f"{len(measured)} of {len(tasks)} tasks")
    elif lacking:
        out.missing.append(f"{', '.join(lacking)} with {name}")
    if not measured:
        return
    wanted = _wanted(claim, asked, shelf, name, measured, mini, out)
    found = _columns(wanted, asked, shelf, name, measured, mini, out)
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


def _tasks(claim: Claim, asked: Comparison) -> list[str]:
    return list(dict.fromkeys(each for task in asked.task for each in labels(claim.paper, task)))


def _wanted(
    claim: Claim, asked: Comparison, shelf: Shelf, name: str, tasks: Sequence[str], mini: bool, out: Evidence
) -> dict[tuple[Spec, str], Wanted]:
    """Every cell that the comparison needs, under the method and the paper's budget that ask for it."""
    names = {each: presets(claim.paper, each.method, each.variant) for each in asked.specs()}
    stands_for = {budget: budget for budget in asked.ladder}
    if mini:
        evicting = [policies for policies in names.values() if policies[0] != "dense"]
        stands_for = stand_ins(asked.ladder, shelf.ladder(name, tasks, evicting))
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
            wanted[spec, spec.budget or budget] = Wanted(policies) if dense else Wanted(policies, own, prompt, blocks)
    return wanted


def _columns(
    wanted: Mapping[tuple[Spec, str], Wanted],
    asked: Comparison,
    shelf: Shelf,
    name: str,
    tasks: Sequence[str],
    mini: bool,
    out: Evidence,
) -> dict[Wanted, list[Measured]]:
    """For each cell that all tasks have: what was measured, task by task."""
    sizes = {cell.block_size for cell in wanted.values() if cell.block_size}
    exact_blocks = not mini or len(sizes) > 1
    found = {}
    for cell in dict.fromkeys(wanted.values()):
        try:
            measured = [
                _measured(asked, shelf.find(cell, name, task, exact_blocks), f"{cell} on {task}") for task in tasks
            ]
            _note_stand_ins(cell, [each.cell for each in measured], mini, out)
            found[cell] = measured
        except MissingError as lacking:
            out.missing.append(str(lacking))
        except ProtocolError as other:
            out.differing.append(str(other))
    return found


def _note_stand_ins(wanted: Wanted, found: Sequence[Cell], mini: bool, out: Evidence) -> None:
    """What was taken for the paper's own setting. Raises `ProtocolError` for what may stand for nothing."""
    if any(cell.synthetic for cell in found):
        if not mini:
            raise ProtocolError(f"data: the prompts of {wanted} are synthetic (data=fixture), the paper's are not")
        out.notes.append("synthetic prompts (data=fixture) for the data set's")
    sizes = sorted({cell.block_size for cell in found})
    if wanted.block_size and sizes != [wanted.block_size]:
        out.notes.append(f"blocks of {', '.join(map(str, sizes))} for {wanted.block_size}")


def _titles(cells: Sequence[Wanted]) -> list[str]:
    """What the cells are called; the regime is named where they differ in it."""
    several = len({cell.regime for cell in cells if not cell.dense}) > 1
    return [f"{cell} ({cell.regime})" if several and not cell.dense else str(cell) for cell in cells]


def _measured(asked: Comparison, cell: Cell, what: str) -> Measured:
    """The comparison's metrics of one cell. Raises `MissingError` for a metric or axis that it does not have."""
    for axis in filter(None, (asked.split, *asked.only)):
        if f"axis_{axis}" not in cell.rows:
            raise MissingError(f"the axis {axis} of {what}")
    if asked.column:
        return Measured(cell, {asked.column: cell.samples[asked.column.split("+")].astype(float).sum(axis=1)})
    values = {}
    for metric in asked.metric:
        options = [cell.metric if each == "first" else each for each in metrics(metric)]
        scored = next((each for each in options if each in cell.scores), "")
        if not scored:
            raise MissingError(f"the metric {' or '.join(options)} of {what}")
        values[metric] = cell.scores[scored]
    return Measured(cell, values)


def _strata(asked: Comparison, cells: Sequence[list[Measured]], tasks: Sequence[str]) -> list[Stratum]:
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
