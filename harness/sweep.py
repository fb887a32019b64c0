"""One command = one sweep: configurations in; rows, a table and a page out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig, OmegaConf
from rich.markup import escape

from harness.cells import Cell
from harness.errors import CellError, UserError
from harness.finished import Finished
from harness.launchers.launch import launch
from harness.launchers.order import Order
from harness.loggers import Logger, logger_of
from harness.report import checked, summary_table, write_report
from harness.samples.prompts import Prompts
from harness.settings.references import Asked, references
from harness.settings.refusals import Refusal, reason_against_cell, told
from harness.terminal import Progress, say, show_summary
from harness.workers.terms import Terms
from tasks.base import TaskError


@dataclass(frozen=True)
class Swept:
    """``notes``: what was refused (``refused``) and which reference lines are missing, each with its reason."""

    finished: Finished
    notes: tuple[str, ...]
    refused: tuple[str, ...]


def sweep(configs: Sequence[DictConfig]) -> None:
    """Run all jobs of one command together. Raises the errors of `harness.errors.MENDABLE`.

    Cells that cannot be run as asked are named before and after the others have run.
    """
    name, results_dir = str(configs[0].name), Path(configs[0].results_dir)
    logger = logger_of(OmegaConf.to_container(configs[0].logger, resolve=True), results_dir, name)
    done = swept(configs, logger)
    rows = done.finished.rows()
    if configs[0].summary:
        _report(rows, name, results_dir, done.notes)
    _told(done.finished)
    logger.finished(rows)
    if problems := [*done.refused, *broken(rows)]:
        raise UserError(" ".join(problems))


def swept(configs: Sequence[DictConfig], logger: Logger) -> Swept:
    """Run the cells of all jobs that can be run, their reference lines beside them; the others are told.

    Raises the errors of `harness.errors.MENDABLE`, and `UserError` where no cell can be run.
    """
    first = configs[0]
    limit = first.limit
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit={limit} leaves nothing to run: give the number of samples per cell, at least 1.")
    prompts, results_dir = Prompts(limit), Path(first.results_dir)
    plain = OmegaConf.to_container(first, resolve=True)
    assert isinstance(plain, dict)
    terms = Terms.parse({str(key): value for key, value in plain.items()})
    asked, refusals = sorted_out(configs, prompts)
    if not asked:
        raise UserError(" ".join(dict.fromkeys(refusal.reason for refusal in refusals)))
    beside, impossible = references(asked, prompts)
    refused = told(refusals, "Refused, and not run:")
    notes = [*refused, *told(impossible, "Without the reference line")]
    for note in notes:
        say(escape(note))
    cells = [*(each.cell for each in asked), *beside]
    logger.started(cells)
    order = Order(tuple(cells), results_dir, str(first.device), limit, terms)
    done = launch(order, plain["launcher"], prompts, Progress(told=logger.progress))
    return Swept(done, tuple(notes), tuple(refused))


def sorted_out(configs: Sequence[DictConfig], prompts: Prompts) -> tuple[list[Asked], list[Refusal]]:
    """The cells that can be run, and those that cannot."""
    asked: list[Asked] = []
    refusals: list[Refusal] = []
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
            refusals.append(Refusal(str(plain["policy"].get("name")), reason))
        else:
            asked.append(Asked(plain, cell))
    return asked, refusals


def _report(rows: pd.DataFrame, name: str, results_dir: Path, notes: Sequence[str]) -> None:
    page = results_dir / "reports" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_report(rows, page, title=name, notes=notes)
    show_summary(summary_table(rows))
    say(f"Report: {page}")


def _told(done: Finished) -> None:
    if done.computed:
        say(f"{done.computed} samples computed, {done.present} were there already.")
    else:
        say(f"Nothing to compute: all {done.present} samples were there already.")
    say(f"Rows:   {done.store.root}")


def broken(rows: pd.DataFrame) -> list[str]:
    """What happened to cells that broke a promise, as sentences; none where all kept theirs."""
    accepted = checked(rows)
    return [
        f"Invalid, and left out of tables and figures: {', '.join(sorted(set(part['policy'])))}. {sentence}"
        for sentence, part in accepted[accepted["invalid"] != ""].groupby("invalid")
    ]
