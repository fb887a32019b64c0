"""``python -m harness.survivors policy=keydiff,h2o,random budget=25% task=niah``: what the survivor viewer shows.

Feeds one sample to several policies, the dense model's own answer behind the prompt, and stores when each head lets go
of each token: ``<results_dir>/diagnostics/<cell>/survivors/<sample>.parquet``, the columns of the diagnostic
``survivors`` (docs/diagnostics.md) with ``text``, what a token is in its place. Takes every setting of
``python -m harness``; values joined by commas are crossed. ``sample=<id>`` chooses the sample, else the first ``limit``
(one where none is given) are taken.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from harness.cells import Cell
from harness.diagnose import diagnosed, written
from harness.diagnostics import check
from harness.diagnostics.token_text import pieces
from harness.errors import CellError, UserError
from harness.listing import CONF
from harness.models import ModelSpec, pick_device
from harness.origin import provenance
from harness.plain_words import errors_in_plain_words
from harness.planning.plan import Job, plan
from harness.samples.prompts import Prompts
from harness.settings.refusals import reason_against_cell
from harness.store import Store
from harness.terminal import say

WHAT = ["survivors"]


def main() -> None:
    """Exit code 0 = written, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Watch and write. Raises the errors of `harness.errors.MENDABLE`, before any weights are loaded where it can."""
    sample = next((each.partition("=")[2] for each in arguments if each.startswith("sample=")), "")
    configs = _composed([each for each in arguments if not each.startswith("sample=")])
    first = configs[0]
    limit = None if sample else 1 if first["limit"] is None else first["limit"]
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit={limit} leaves nothing to watch: give the number of samples, at least 1.")
    store, prompts, device = Store(Path(first["results_dir"]) / "diagnostics"), Prompts(limit), first["device"]
    cells = list({cell.id: cell for cell in map(Cell.parse, configs)}.values())
    work = [(cell, _jobs(cell, store, prompts, sample)) for cell in cells]
    store.check_writable()
    models: dict[ModelSpec, Any] = {}
    for cell, jobs in work:
        if cell.model not in models:
            models[cell.model] = cell.model.load(pick_device(device))
        store.describe(cell.id, {**cell.description(), **provenance.record(pick_device(device))})
        for job in jobs:
            _watched(models[cell.model], job, prompts, store.root / cell.id)
        say(f"{cell.policy.name} at {cell.budget.label} on {cell.task.label}: {len(jobs)} watched")
    say(f"Stored under {store.root}. The pages that show it: python -m harness.site results={first['results_dir']}")


def _composed(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The configurations of the main command, one for each combination of values that are joined by commas."""
    choices = [
        [f"{each.get_key_element()}={value}" for value in each.sweep_string_iterator()]
        if each.is_sweep_override()
        else [each.input_line]
        for each in OverridesParser.create().parse_overrides(list(arguments))
    ]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        composed = [compose("config", overrides=list(typed)) for typed in itertools.product(*choices)]
    plain: list[Any] = [OmegaConf.to_container(each, resolve=True) for each in composed]
    return plain


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


def _watched(model: Any, job: Job, prompts: Prompts, folder: Path) -> None:
    """One run, stored with its text."""
    frames = diagnosed(model, job, WHAT)
    (frame,) = frames.values()
    once = frame.drop_duplicates("position").sort_values("position")
    text = pieces(prompts.wording(job.cell.model).tokenizer, once["token"].tolist())
    frame["text"] = frame["position"].map(dict(zip(once["position"], text, strict=True)))
    written(frames, job, folder)
    if frame.attrs["invalid"]:
        say(f"[bold red]Invalid[/]: {frame.attrs['invalid']}")


if __name__ == "__main__":
    main()
