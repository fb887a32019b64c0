"""``python -m harness survivors policy=keydiff,h2o,random budget=25% task=niah``: data of the site's survivor viewer.

Feeds one sample to several policies, with the dense model's own answer after the prompt, and stores when each head
evicts each token: ``<results_dir>/diagnostics/<cell>/survivors/<sample>.parquet``, the columns of the diagnostic
``survivors`` (docs/diagnostics.md) and ``text``, the token at its position. Takes every setting of
``python -m harness run``; values joined by commas are crossed. ``sample=<id>`` chooses the sample; without it the first
``limit`` samples are taken (1 by default).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.analysis.diagnostics import check
from harness.analysis.recording import DenseRuns
from harness.analysis.token_diagnostics import pieces
from harness.cli.arguments import parse_known
from harness.config import provenance
from harness.config.cell import Cell
from harness.config.compose import checked_config, compose_config, composing_errors
from harness.config.model import ModelSpec, pick_device
from harness.console import say
from harness.errors import CellError, UserError
from harness.runner.checks import reason_against_cell
from harness.runner.diagnostic_runs import dense_runs, diagnosed, written
from harness.runner.plan import Job, plan, unique_cells
from harness.runner.samples import Prompts
from harness.store.store import Store

WHAT = ["survivors"]


@dataclass
class SurvivorSettings:
    """``sample``: the id of one; the first ``limit`` samples where it is empty."""

    sample: str = ""


def main(words: Sequence[str]) -> None:
    """Run and write. Raises the errors of `USER_ERRORS`, where possible before any weights are loaded."""
    own, overrides = parse_known(SurvivorSettings, words, "survivors", __doc__)
    sample, configs = own.sample, _composed(overrides)
    first = configs[0]
    limit = None if sample else first["limit"] or 1
    store, prompts, device = Store(Path(first["results_dir"]) / "diagnostics"), Prompts(), first["device"]
    cells = unique_cells(replace(Cell.parse(config), limit=limit) for config in configs)
    work = [(cell, _jobs(cell, store, prompts, sample)) for cell in cells]
    store.check_writable()
    dense: dict[ModelSpec, DenseRuns] = {}
    for cell, jobs in work:
        if cell.model not in dense:
            dense[cell.model] = dense_runs(cell.model, pick_device(device))
        store.describe(cell.id, {**cell.description(), **provenance.cell_provenance(pick_device(device))})
        for job in jobs:
            _watched(dense[cell.model], job, prompts, store.root / cell.id)
        say(f"{cell.policy.name} at {cell.budget.label} on {cell.task.label}: {len(jobs)} watched")
    say(f"Stored under {store.root}. The pages that show it: python -m harness site results_dir={first['results_dir']}")


def _composed(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations of the main command, one for each combination of values that are joined by commas."""
    with composing_errors():
        choices = [
            [f"{each.get_key_element()}={value}" for value in each.sweep_string_iterator()]
            if each.is_sweep_override()
            else [each.input_line]
            for each in OverridesParser.create().parse_overrides(list(arguments))
        ]
    return [checked_config(compose_config(typed)) for typed in itertools.product(*choices)]


def _jobs(cell: Cell, store: Store, prompts: Prompts, sample: str) -> list[Job]:
    """The samples of a cell that are asked for."""
    check(cell.policy, WHAT)
    if reason := reason_against_cell(cell, prompts):
        raise CellError(reason)
    jobs = list(plan(cell.model, [cell], store, prompts).jobs)
    if not sample:
        return jobs
    chosen = [job for job in jobs if job.sample.id == sample]
    if not chosen:
        known = [job.sample.id for job in jobs]
        close = get_close_matches(sample, known, 3) or known[:3]
        raise UserError(f"Task {cell.task.label} has no sample '{sample}': try {', '.join(close)}.")
    return chosen


def _watched(dense: DenseRuns, job: Job, prompts: Prompts, folder: Path) -> None:
    """One run, stored with its text."""
    frames = diagnosed(dense, job, WHAT)
    (frame,) = frames.values()
    once = frame.drop_duplicates("position").sort_values("position")
    text = pieces(prompts.encoder(job.cell.model).tokenizer, once["token"].tolist())
    frame["text"] = frame["position"].map(dict(zip(once["position"], text, strict=True)))
    written(frames, job, folder)
    if frame.attrs["invalid"]:
        say(f"[bold red]Invalid[/]: {frame.attrs['invalid']}")
