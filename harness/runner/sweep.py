"""One command is one sweep: configurations in; rows in the store, a table and a page out.

Baselines run beside the requested cells, so that every number can be compared: dense is the model itself, random the
floor that a method has to beat, the oracle the best that a budget allows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from omegaconf import DictConfig
from rich.markup import escape

from harness.config.cell import Cell
from harness.config.compose import to_plain
from harness.config.policy_config import preset
from harness.console import say
from harness.errors import CellError, UserError
from harness.runner.checks import UnsupportedCell, explain_unsupported, reason_against_cell
from harness.runner.job_spec import JobSpec
from harness.runner.launchers import launch
from harness.runner.plan import Job, RunResult
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from tasks.base import TaskError


@dataclass(frozen=True)
class RequestedCell:
    """A cell, and the configuration (plain containers) that requested it."""

    config: Mapping[str, Any]
    cell: Cell


def baseline_cells(requested: Sequence[RequestedCell], prompts: Prompts) -> tuple[list[Cell], list[UnsupportedCell]]:
    """The baselines (``references``) of every evicting cell, and those that are not possible there.

    One for each model, task, budget, prompt regime and seed; none where a policy of that name was requested.
    """
    evicting = {_all_but_policy(each.cell): each for each in requested if not each.cell.policy.is_dense}
    named = {(_all_but_policy(each.cell), each.cell.policy.name) for each in requested}
    cells: dict[str, Cell] = {}
    unsupported: list[UnsupportedCell] = []
    for each in evicting.values():
        for name in _baseline_names(each.config["references"]):
            config = {**each.config, "policy": preset(name), "prompt": each.cell.prompting.regime}
            try:
                cell = Cell.parse(config)
                reason = reason_against_cell(cell, prompts)
            except CellError as error:
                reason = str(error)
            if reason:
                unsupported.append(
                    UnsupportedCell(f"{name} ({each.cell.task.label}, budget {each.cell.budget.label})", reason)
                )
            elif (_all_but_policy(cell), cell.policy.name) not in named:
                cells[cell.id] = cell
    return list(cells.values()), unsupported


def _all_but_policy(cell: Cell) -> Hashable:
    """Everything about a cell but its policy."""
    return cell.model, cell.task, cell.seed, cell.prompting, cell.budget


def _baseline_names(setting: object) -> list[str]:
    if not isinstance(setting, list):
        raise UserError(f"references={setting} is not a list: write references=[{setting or ''}].")
    return [str(name) for name in setting]


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


def run_sweep(configs: Sequence[DictConfig], logger: Logger) -> SweepResult:
    """Run the cells that can be run and their baselines; print which others cannot, and why.

    Raises the errors of `harness.config.cell.USER_ERRORS`, and `UserError` where no cell can be run.
    """
    first = configs[0]
    limit = first.limit
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit={limit} leaves nothing to run: give the number of samples per cell, at least 1.")
    prompts, results_dir = Prompts(limit), Path(first.results_dir)
    plain = to_plain(first)
    settings = RunSettings.parse(plain)
    requested, unsupported = parse_cells(configs, prompts)
    if not requested:
        raise UserError(" ".join(dict.fromkeys(each.reason for each in unsupported)))
    baselines, impossible = baseline_cells(requested, prompts)
    refused = explain_unsupported(unsupported, "Refused, and not run:")
    notes = [*refused, *explain_unsupported(impossible, "Without the baseline")]
    for note in notes:
        say(escape(note))
    cells = [*(each.cell for each in requested), *baselines]
    logger.started(cells)
    spec = JobSpec(tuple(cells), results_dir, str(first.device), limit, settings)
    done = launch(spec, plain["launcher"], prompts, Progress(on_stored=logger.progress))
    return SweepResult(done, tuple(notes), tuple(refused))


def parse_cells(configs: Sequence[DictConfig], prompts: Prompts) -> tuple[list[RequestedCell], list[UnsupportedCell]]:
    """The cells that can be run, and those that cannot."""
    requested: list[RequestedCell] = []
    unsupported: list[UnsupportedCell] = []
    for job in configs:
        plain = to_plain(job)
        try:
            cell = Cell.parse(plain)
            reason = reason_against_cell(cell, prompts)
        except (CellError, TaskError) as error:
            reason = str(error)
        if reason:
            unsupported.append(UnsupportedCell(str(plain["policy"].get("name")), reason))
        else:
            requested.append(RequestedCell(plain, cell))
    return requested, unsupported
