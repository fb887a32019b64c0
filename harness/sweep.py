"""One command = one sweep: configurations in; rows, a table and a page out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from harness.cells import Cell
from harness.errors import UserError
from harness.models import pick_device
from harness.report import summary_table, write_report
from harness.runner import Finished, run
from harness.terminal import Progress, say, show_summary


def sweep(configs: Sequence[DictConfig]) -> None:
    """Run all jobs of one command together. Raises the errors of `harness.errors.MENDABLE`."""
    cells = [Cell.parse(OmegaConf.to_container(config, resolve=True)) for config in configs]  # type: ignore[arg-type]
    first = configs[0]
    limit = first.limit
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit={limit} leaves nothing to run: give the number of samples per cell, at least 1.")
    results_dir = Path(first.results_dir)
    _report(run(cells, results_dir, pick_device(first.device), limit, Progress()), str(first.name), results_dir)


def _report(done: Finished, name: str, results_dir: Path) -> None:
    rows = done.rows()
    page = results_dir / "reports" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_report(rows, page, title=name, notes=())
    show_summary(summary_table(rows))
    if done.computed:
        say(f"{done.computed} samples computed, {done.present} were there already.")
    else:
        say(f"Nothing to compute: all {done.present} samples were there already.")
    say(f"Rows:   {done.store.root}\nReport: {page}")
    if broken := _broken(rows):
        raise UserError(broken)


def _broken(rows: pd.DataFrame) -> str:
    """What happened to cells that broke a promise, as sentences; empty where all kept theirs."""
    told = [
        f"Invalid, and left out of tables and figures: {', '.join(sorted(set(part['policy'])))}. {sentence}"
        for sentence, part in rows[rows["invalid"] != ""].groupby("invalid")
    ]
    return " ".join(told)
