"""One command is one sweep: configurations in; rows in the store, a table and a page out.

Baselines run beside the requested cells, so that every number can be compared: dense is the model itself, random the
floor that a method has to beat, the oracle the best that a budget allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from rich.markup import escape

from harness.config.budget import Budget, published_length
from harness.config.cell import Cell, greatest
from harness.config.model import ModelSpec
from harness.config.policy_config import preset
from harness.config.settings import check_config
from harness.console import say
from harness.errors import CellError, MissingInputError, UserError
from harness.runner.checks import UnsupportedCell, explain_unsupported, reason_against_cell
from harness.runner.job_spec import JobSpec
from harness.runner.launchers import launch
from harness.runner.plan import Job, RunResult, unique_cells
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from tasks.base import MissingDataError, TaskError

DENSE = "dense"  # the baseline that is compared sample by sample


@dataclass(frozen=True)
class RequestedCell:
    """A cell, and the first configuration (plain containers) that requested it."""

    config: Mapping[str, Any]
    cell: Cell


def baseline_cells(requested: Sequence[RequestedCell], prompts: Prompts) -> tuple[list[Cell], list[UnsupportedCell]]:
    """The baselines (``references``) of every evicting cell, and those that are not possible there.

    One for each model, task, budget, prompt regime and seed; none where another policy of that name was requested.
    Dense is compared sample by sample, so it has the greatest number of samples of the cells that it stands beside; the
    others have ``baseline_limit`` samples at most.
    """
    beside: dict[tuple[Hashable, str], list[RequestedCell]] = defaultdict(list)
    for each in requested:
        if not each.cell.policy.is_dense:
            for name in each.config["references"]:
                beside[_all_but_policy(each.cell), name].append(each)
    named = {(_all_but_policy(each.cell), each.cell.policy.name): each.cell.id for each in requested}
    cells: list[Cell] = []
    unsupported: list[UnsupportedCell] = []
    for (_, name), members in beside.items():
        one = members[0]
        config = {**one.config, "policy": preset(name), "prompt": one.cell.prompting.regime}
        try:
            cell = replace(Cell.parse(config), limit=greatest(_baseline_limit(name, each) for each in members))
            reason = reason_against_cell(cell, prompts)
        except CellError as error:
            reason = str(error)
        if reason:
            where = f"{name} ({one.cell.task.label}, budget {one.cell.budget.label})"
            unsupported.append(UnsupportedCell(where, reason))
        elif named.get((_all_but_policy(cell), cell.policy.name), cell.id) == cell.id:
            cells.append(cell)
    return list(unique_cells(cells)), unsupported


def _baseline_limit(name: str, beside: RequestedCell) -> int | None:
    """Samples of the baseline of this name beside a cell; None = all."""
    most = None if name == DENSE else beside.config["baseline_limit"]
    return min((limit for limit in (most, beside.cell.limit) if limit is not None), default=None)


def _all_but_policy(cell: Cell) -> Hashable:
    """Everything about a cell but its policy."""
    return cell.model, cell.task, cell.seed, cell.prompting, cell.budget


class Logger(Protocol):
    """What a sweep tells. Nothing that happens in a logger may stop the sweep, nor make it wait."""

    def started(self, cells: Sequence[Cell]) -> None:
        """These cells are about to be run."""

    def progress(self, jobs: Sequence[Job]) -> None:
        """These samples are in the store."""

    def finished(self, rows: pd.DataFrame) -> None:
        """All rows of the cells, of this run and earlier ones; the last call."""


@dataclass(frozen=True)
class SweepResult:
    """``refused``: cells that were not run. ``notes``: these and the missing baselines. Each with its reason."""

    finished: RunResult
    notes: tuple[str, ...]
    refused: tuple[str, ...]


def run_sweep(configs: Sequence[Mapping[str, Any]], logger: Logger) -> SweepResult:
    """Run the cells that can be run and their baselines; print which others cannot, and why.

    ``configs``: plain containers, one for each job. Raises the errors of `harness.config.cell.USER_ERRORS`, and
    `UserError` where no cell can be run.
    """
    prompts, first = Prompts(), configs[0]
    check_config(first)
    settings = RunSettings.parse(first)
    requested, unsupported = parse_cells(configs, prompts)
    if not requested:
        raise nothing_to_run(unsupported, first)
    baselines, impossible = baseline_cells(requested, prompts)
    refused = explain_unsupported(unsupported, "Refused, and not run:")
    notes = [
        *refused,
        *explain_unsupported(impossible, "Without the baseline"),
        *explain_scaled_budgets(requested, prompts),
    ]
    for note in notes:
        say(escape(note))
    cells = unique_cells([*(each.cell for each in requested), *baselines])
    logger.started(cells)
    spec = JobSpec(cells, Path(first["results_dir"]), first["device"], settings)
    done = launch(spec, first["launcher"], prompts, Progress(on_stored=logger.progress))
    return SweepResult(done, tuple(notes), tuple(refused))


def nothing_to_run(unsupported: Sequence[UnsupportedCell], config: Mapping[str, Any]) -> UserError:
    """The error of a command none of whose cells can be run: all that is missing at once, data before the model."""
    reasons = dict.fromkeys(each.reason for each in unsupported)
    if not all(each.lacks_data for each in unsupported):
        return UserError(" ".join(reasons))
    lines = [" ".join(reasons)]
    try:
        ModelSpec.parse(config["model"]).config()
    except UserError as error:
        lines.append(str(error))
    return MissingInputError("\n".join(lines))


def explain_scaled_budgets(requested: Sequence[RequestedCell], prompts: Prompts) -> list[str]:
    """One line for each written number of slots that became a share (``budget_slots=scaled``), with what it is here."""
    found: dict[str, list[int]] = defaultdict(list)
    for each in requested:
        written, length = str(each.config["budget"]), published_length(each.cell.task.label)
        is_scaled = Budget.parse(written).slots is not None and each.cell.budget.share is not None
        if is_scaled and length is not None:
            of = f"budget {written} of prompts of {length[1]:,} tokens = {each.cell.budget.label}"
            found[of] += [slots for _, _, slots in prompts.samples_of(each.cell)]
    return [f"{of}: {min(slots)} to {max(slots)} slots of the synthetic prompts here" for of, slots in found.items()]


def parse_cells(
    configs: Sequence[Mapping[str, Any]], prompts: Prompts
) -> tuple[list[RequestedCell], list[UnsupportedCell]]:
    """The cells that can be run, each once, and those that cannot.

    A cell that several configurations request gets the greatest number of samples of them.
    """
    parsed: list[RequestedCell] = []
    unsupported: list[UnsupportedCell] = []
    for config in configs:
        check_config(config)
        try:
            parsed.append(RequestedCell(config, Cell.parse(config)))
        except (CellError, TaskError) as error:
            name = str(config["policy"].get("name"))
            data_set = error.data_set if isinstance(error, MissingDataError) else ""
            unsupported.append(UnsupportedCell(name, str(error), isinstance(error, MissingDataError), data_set))
    by_id = {each.cell.id: each for each in reversed(parsed)}
    requested: list[RequestedCell] = []
    unique = unique_cells(each.cell for each in parsed)
    prompts.expect(unique)
    for cell in unique:
        try:
            reason = reason_against_cell(cell, prompts)
        except (CellError, TaskError) as error:
            reason = str(error)
        if reason:
            unsupported.append(UnsupportedCell(cell.policy.name, reason))
        else:
            requested.append(RequestedCell(by_id[cell.id].config, cell))
    return requested, unsupported
