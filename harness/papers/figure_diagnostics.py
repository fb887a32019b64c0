"""The diagnostics that figures, tables and claims need: every cell is diagnosed once, and the results are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from harness.analysis.recording import DenseRuns
from harness.config import provenance
from harness.config.cell import Cell
from harness.config.compose import composing_errors
from harness.config.experiments import CONF
from harness.config.jobs import grid_jobs
from harness.config.model import ModelSpec, pick_device
from harness.config.settings import check_config
from harness.console import say
from harness.errors import CellError
from harness.papers.claim_diagnostics import diagnostics_for_claims
from harness.papers.figures.figure_cells import experiment_name
from harness.papers.figures.figure_index import FigureDiagnostics, diagnostics_of, item_with_cells
from harness.papers.published import Scale
from harness.runner.checks import reason_against_cell
from harness.runner.diagnostic_runs import TEXT, dense_runs, diagnosed, file_of, text_of, written
from harness.runner.plan import Job, plan
from harness.runner.samples import Prompts
from harness.store.store import Store


@dataclass
class DiagnosticWork:
    """One cell, and how many samples each of its diagnostics needs."""

    cell: Cell
    samples: dict[str, int] = field(default_factory=dict)


def diagnose_items(paper: str, items: Sequence[str], scale: Scale, overrides: Sequence[str]) -> int:
    """Compute the diagnostics that these figures and tables need and the store lacks; returns the number of samples.

    ``overrides``: further settings of ``python -m harness``. Raises the errors of `harness.config.cell.USER_ERRORS`.
    """
    work, results_dir, device = _work(paper, items, scale, overrides)
    store = Store(results_dir / "diagnostics")
    if work:
        store.check_writable()
    prompts = Prompts()
    prompts.expect(each.cell for each in work)
    by_prompt: dict[tuple[ModelSpec, tuple[int, ...]], list[tuple[Job, list[str]]]] = defaultdict(list)
    for each in work:
        if reason := reason_against_cell(each.cell, prompts):
            raise CellError(reason)
        for job, what in _missing_samples(each, store, prompts):
            by_prompt[each.cell.model, tuple(job.row.tokens)].append((job, what))
    dense: dict[ModelSpec, DenseRuns] = {}
    for number, ((model, _), jobs) in enumerate(by_prompt.items(), start=1):
        if model not in dense:
            dense[model] = dense_runs(model, pick_device(device))
        for job, what in jobs:  # what they are compared with, the prompt without eviction, runs once
            cell = job.cell
            store.describe(cell.id, {**cell.description(), **provenance.cell_provenance(pick_device(device))})
            frames = diagnosed(dense[model], job, what)
            written(frames | {TEXT: text_of(job, prompts)}, job, store.root / cell.id)
        say(f"{number} of {len(by_prompt)}: a prompt of {jobs[0][0].cell.task.label} under {_policies(jobs)}")
    return sum(map(len, by_prompt.values()))


def _policies(jobs: Sequence[tuple[Job, list[str]]]) -> str:
    names = list(dict.fromkeys(job.cell.policy.name for job, _ in jobs))
    return names[0] if len(names) == 1 else f"{len(names)} policies"


def _missing_samples(work: DiagnosticWork, store: Store, prompts: Prompts) -> Iterator[tuple[Job, list[str]]]:
    """The samples that lack diagnostics, with the names of those."""
    folder = store.root / work.cell.id
    ranks = {sample.id: rank for rank, (sample, _, _) in enumerate(prompts.samples_of(work.cell))}
    for job in plan(work.cell.model, [work.cell], store, prompts).jobs:
        asked = [name for name, samples in work.samples.items() if ranks[job.sample.id] < samples]
        if lacking := [name for name in asked if not file_of(name, job.sample, folder).exists()]:
            yield job, lacking


def _work(
    paper: str, items: Sequence[str], scale: Scale, overrides: Sequence[str]
) -> tuple[list[DiagnosticWork], Path, str]:
    """The cells of all items with diagnostics, each once; the results folder; the device."""
    found: dict[str, DiagnosticWork] = {}
    results_dir, device = Path("results"), "auto"
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        needs = [
            (item, each)
            for item in items
            for each in (diagnostics_of(paper, item), *diagnostics_for_claims(paper, item))
        ]
        for item, wanted in needs:
            for config in _item_configs(paper, item, wanted, scale, overrides):
                results_dir, device = Path(config["results_dir"]), config["device"]
                cell = Cell.parse(config)
                if cell.policy.token_filter is not None:  # it evicts nothing from a cache
                    continue
                work = found.setdefault(cell.id, DiagnosticWork(cell))
                for name in wanted.names:
                    work.samples[name] = max(work.samples.get(name, 0), wanted.samples(scale))
    cells = [replace(each, cell=replace(each.cell, limit=max(each.samples.values()))) for each in found.values()]
    return cells, results_dir, device


def _item_configs(
    paper: str, item: str, wanted: FigureDiagnostics, scale: Scale, overrides: Sequence[str]
) -> Iterator[dict[str, Any]]:
    if not wanted.names:
        return
    typed = [f"+exp={paper}/{experiment_name(item_with_cells(paper, item))}", f"scale={scale}", *overrides]
    with composing_errors():
        made = grid_jobs(_compose(tuple(typed)), typed, scale, lambda given: _compose(tuple(given)))
        jobs = list(islice(made, 1 if wanted.of_dense else None))
    for job in jobs:
        check_config(job)
        yield job


@cache
def _compose(overrides: tuple[str, ...]) -> DictConfig:
    """A composed configuration; figures share most of theirs."""
    return compose("config", overrides=list(overrides))
