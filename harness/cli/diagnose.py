"""``python -m harness diagnose what=[kept,coverage] model=… policy=… task=…``: what a policy does inside one cell.

Takes every setting of ``python -m harness run``; ``limit`` is 1 sample by default. Frames are written to
``<results_dir>/diagnostics/<cell>/<diagnostic>/<sample>.parquet``, the prompt's tokens as text beside them. For tasks
that generate, the dense model's own answer is fed token by token, so that all policies see the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf, open_dict
from rich.table import Table

from harness.analysis.diagnostics import DIAGNOSTICS, check, chosen
from harness.config import provenance
from harness.config.cell import Cell
from harness.config.compose import checked_config, compose_config
from harness.config.model import pick_device
from harness.config.type_check import check_value
from harness.console import console, say
from harness.errors import CellError
from harness.runner.checks import reason_against_cell
from harness.runner.diagnostic_runs import TEXT, dense_runs, diagnosed, text_of, written
from harness.runner.plan import plan
from harness.runner.samples import Prompts
from harness.store.store import Store


def main(words: Sequence[str]) -> None:
    """Diagnose and write. Raises the errors of `harness.config.cell.USER_ERRORS`."""
    what, config = _composed(words)
    chosen(what)
    asked = Cell.parse(config)
    cell = replace(asked, limit=asked.limit or 1)
    check(cell.policy, what)
    store = Store(Path(config["results_dir"]) / "diagnostics")
    prompts = Prompts()
    if reason := reason_against_cell(cell, prompts):
        raise CellError(reason)
    jobs = plan(cell.model, [cell], store, prompts).jobs
    store.check_writable()
    device = pick_device(config["device"])
    dense = dense_runs(cell.model, device)
    store.describe(cell.id, {**cell.description(), **provenance.cell_provenance(device)})
    frames = [diagnosed(dense, job, what) for job in jobs]
    folder = store.root / cell.id
    for job, by_name in zip(jobs, frames, strict=True):
        written(by_name | {TEXT: text_of(job, prompts)}, job, folder)
    for name in what:
        _show(name, pd.concat([by_name[name] for by_name in frames], ignore_index=True))
    for sentence in sorted({each.attrs["invalid"] for by_name in frames for each in by_name.values()} - {""}):
        say(f"[bold red]Invalid[/]: {sentence}")
    say(f"Frames: {folder}")


def _composed(words: Sequence[str]) -> tuple[Sequence[str], dict[str, Any]]:
    """``what``, which only this command has, and the configuration of the main command."""
    config = compose_config([f"+{word}" if word.startswith("what=") else word for word in words])
    with open_dict(config):
        asked = config.pop("what", None) or []
    what = OmegaConf.to_container(asked) if OmegaConf.is_config(asked) else asked
    check_value(tuple[str, ...], what, "what")
    return what, checked_config(config)


def _show(name: str, frame: pd.DataFrame) -> None:
    """The short table of a diagnostic, over all samples."""
    if frame.empty:
        say(f"{name}: nothing to show, the budget holds the whole sequence.")
        return
    summary = DIAGNOSTICS[name].summary(frame)
    say(f"{name}, {len(frame):,} rows")  # a title of the table would be broken to its width
    table = Table()
    for column in summary.columns:
        table.add_column(str(column), justify="right")
    for line in summary.to_dict("records"):
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in line.values()))
    console.print(table)
