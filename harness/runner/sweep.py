"""The reference lines of a sweep: cells that nobody has to ask for, so that every number has something to stand beside.

Dense is the model itself, random the floor that a method has to beat, the oracle the headroom that a budget leaves.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from omegaconf import DictConfig, OmegaConf
from rich.markup import escape

from harness.config.cell import Cell
from harness.config.policy import preset
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
    """A cell, and the configuration (plain containers) that asked for it."""

    config: Mapping[str, Any]
    cell: Cell


def baseline_cells(asked: Sequence[RequestedCell], prompts: Prompts) -> tuple[list[Cell], list[UnsupportedCell]]:
    """The cells of ``references`` beside every evicting cell, and those that are not possible there.

    One for each model, task, budget, prompt regime and seed; none where a policy of that name was asked for.
    """
    evicting = {_all_but_policy(each.cell): each for each in asked if not each.cell.policy.is_dense}
    named = {(_all_but_policy(each.cell), each.cell.policy.name) for each in asked}
    cells: dict[str, Cell] = {}
    refusals: list[UnsupportedCell] = []
    for each in evicting.values():
        for name in _baseline_names(each.config["references"]):
            config = {**each.config, "policy": preset(name), "prompt": each.cell.prompting.regime}
            try:
                cell = Cell.parse(config)
                reason = reason_against_cell(cell, prompts)
            except CellError as error:
                reason = str(error)
            if reason:
                refusals.append(
                    UnsupportedCell(f"{name} ({each.cell.task.label}, budget {each.cell.budget.label})", reason)
                )
            elif (_all_but_policy(cell), cell.policy.name) not in named:
                cells[cell.id] = cell
    return list(cells.values()), refusals


def _all_but_policy(cell: Cell) -> Hashable:
    """Everything about a cell but its policy."""
    return cell.model, cell.task, cell.seed, cell.prompting, cell.budget


def _baseline_names(setting: object) -> list[str]:
    if not isinstance(setting, list):
        raise UserError(f"references={setting} is not a list: write references=[{setting or ''}].")
    return [str(name) for name in setting]


# One command = one sweep: configurations in; rows, a table and a page out.


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
    """``notes``: what was refused (``refused``) and which reference lines are missing, each with its reason."""

    finished: RunResult
    notes: tuple[str, ...]
    refused: tuple[str, ...]


def run_sweep(configs: Sequence[DictConfig], logger: Logger) -> SweepResult:
    """Run the cells of all jobs that can be run, their reference lines beside them; the others are told.

    Raises the errors of `harness.config.cell.USER_ERRORS`, and `UserError` where no cell can be run.
    """
    first = configs[0]
    limit = first.limit
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit={limit} leaves nothing to run: give the number of samples per cell, at least 1.")
    prompts, results_dir = Prompts(limit), Path(first.results_dir)
    plain = OmegaConf.to_container(first, resolve=True)
    assert isinstance(plain, dict)
    terms = RunSettings.parse({str(key): value for key, value in plain.items()})
    asked, refusals = parse_cells(configs, prompts)
    if not asked:
        raise UserError(" ".join(dict.fromkeys(refusal.reason for refusal in refusals)))
    beside, impossible = baseline_cells(asked, prompts)
    refused = explain_unsupported(refusals, "Refused, and not run:")
    notes = [*refused, *explain_unsupported(impossible, "Without the reference line")]
    for note in notes:
        say(escape(note))
    cells = [*(each.cell for each in asked), *beside]
    logger.started(cells)
    order = JobSpec(tuple(cells), results_dir, str(first.device), limit, terms)
    done = launch(order, plain["launcher"], prompts, Progress(told=logger.progress))
    return SweepResult(done, tuple(notes), tuple(refused))


def parse_cells(configs: Sequence[DictConfig], prompts: Prompts) -> tuple[list[RequestedCell], list[UnsupportedCell]]:
    """The cells that can be run, and those that cannot."""
    asked: list[RequestedCell] = []
    refusals: list[UnsupportedCell] = []
    for job in configs:
        config = OmegaConf.to_container(job, resolve=True)
        assert isinstance(config, dict)
        plain = {str(key): value for key, value in config.items()}
        try:
            cell = Cell.parse(plain)
            reason = reason_against_cell(cell, prompts)
        except (CellError, TaskError) as error:
            reason = str(error)
        if reason:
            refusals.append(UnsupportedCell(str(plain["policy"].get("name")), reason))
        else:
            asked.append(RequestedCell(plain, cell))
    return asked, refusals
