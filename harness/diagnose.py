"""``python -m harness.diagnose what=[kept,coverage] model=… policy=… task=…``: look inside one cell.

Takes every setting of ``python -m harness``; ``limit`` is 1 sample where none is given. Frames go to
``<results_dir>/diagnostics/<cell>/<diagnostic>/<sample>.parquet``, the prompt's tokens as text beside them. Tasks that
generate are diagnosed on the dense model's own answer, fed token by token, so that all policies are compared on the
same tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.table import Table

from harness.cells import Cell
from harness.diagnostics import DIAGNOSTICS, check, chosen, diagnose
from harness.diagnostics.forced import dense_continuation
from harness.diagnostics.token_text import pieces
from harness.errors import CellError, UserError
from harness.listing import CONF
from harness.models import eos_token_ids, pick_device
from harness.origin import provenance
from harness.plain_words import errors_in_plain_words
from harness.planning.plan import Job, plan
from harness.samples.prompts import Prompts
from harness.settings.refusals import reason_against_cell
from harness.store import Store, write_atomically
from harness.terminal import console, say
from tasks.base import Sample

TEXT = "text"  # beside the diagnostics: what the tokens of a sample are


def main() -> None:
    """Exit code 0 = written, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Diagnose and write. Raises the errors of `harness.errors.MENDABLE`."""
    config = _composed(arguments)
    what = config.pop("what", None) or []
    if not isinstance(what, list):
        raise UserError(f"what={what} is not a list: write what=[{what}].")
    chosen(what)
    cell = Cell.parse(config)
    check(cell.policy, what)
    limit = 1 if config["limit"] is None else config["limit"]
    if not isinstance(limit, int) or limit < 1:
        raise UserError(f"limit={limit} leaves nothing to diagnose: give the number of samples, at least 1.")
    store = Store(Path(config["results_dir"]) / "diagnostics")
    prompts = Prompts(limit)
    if reason := reason_against_cell(cell, prompts):
        raise CellError(reason)
    jobs = plan(cell.model, [cell], store, prompts).jobs
    store.check_writable()
    device = pick_device(config["device"])
    model = cell.model.load(device)
    store.describe(cell.id, {**cell.description(), **provenance.record(device)})
    frames = [diagnosed(model, job, what) for job in jobs]
    folder = store.root / cell.id
    for job, by_name in zip(jobs, frames, strict=True):
        written(by_name | {TEXT: text_of(job, prompts)}, job, folder)
    for name in what:
        _show(name, pd.concat([by_name[name] for by_name in frames], ignore_index=True))
    for sentence in sorted({each.attrs["invalid"] for by_name in frames for each in by_name.values()} - {""}):
        say(f"[bold red]Invalid[/]: {sentence}")
    say(f"Frames: {folder}")


def _composed(arguments: Sequence[str]) -> dict[str, Any]:
    """The configuration of the main command, and ``what``, which only this command has."""
    overrides = [f"+{each}" if each.startswith("what=") else each for each in arguments]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = OmegaConf.to_container(compose("config", overrides=overrides), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def diagnosed(model: Any, job: Job, what: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The frames of one sample, with its id in front."""
    row, prompting = job.row, job.cell.prompting
    continuation = dense_continuation(model, row.tokens, row.max_new_tokens, eos_token_ids(model), prompting)
    frames = diagnose(model, row.tokens, row.policy, row.budget, prompting, what, continuation)
    for frame in frames.values():
        frame.insert(0, "sample_id", job.sample.id)
    return frames


def text_of(job: Job, prompts: Prompts) -> pd.DataFrame:
    """The prompt's tokens as text, for figures that show them: ``sample_id``, ``position``, ``text``."""
    words = pieces(prompts.wording(job.cell.model).tokenizer, job.row.tokens)
    return pd.DataFrame({"sample_id": job.sample.id, "position": range(len(words)), "text": words})


def file_of(name: str, sample: Sample, folder: Path) -> Path:
    """Where a frame of one sample lies in its cell's folder."""
    return folder / name / f"{sample.id.replace('/', '_')}.parquet"


def written(frames: Mapping[str, pd.DataFrame], job: Job, folder: Path) -> None:
    """Write the frames of one sample, each whole or not at all."""
    for name, frame in frames.items():
        file = file_of(name, job.sample, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, frame.to_parquet(index=False))


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


if __name__ == "__main__":
    main()
