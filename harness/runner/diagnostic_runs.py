"""Runs diagnostics of one sample of a cell, and writes them into the folder of the cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from harness.analysis.diagnostics import diagnose
from harness.analysis.recording import DenseRuns
from harness.analysis.token_diagnostics import pieces
from harness.atomic_files import write_atomically
from harness.config.model import ModelSpec, eos_token_ids
from harness.runner.plan import Job
from harness.runner.samples import Prompts
from tasks.base import Sample

TEXT = "text"  # name of the frame with the tokens of a sample as text


def dense_runs(model: ModelSpec, device: str) -> DenseRuns:
    """Those of a model that is loaded onto ``device`` for them. Raises the errors of `ModelSpec.load`."""
    loaded = model.load(device)
    return DenseRuns(loaded, eos_token_ids(loaded))


def diagnosed(dense: DenseRuns, job: Job, what: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The frames of one sample under the model of these dense runs, with its id in front."""
    row, prompting = job.row, job.cell.prompting
    answer = dense.continuation(row.tokens, row.max_new_tokens, prompting)
    frames = diagnose(dense.model, row.tokens, row.policy, row.budget, prompting, what, answer, row.so_far, dense)
    for frame in frames.values():
        frame.insert(0, "sample_id", job.sample.id)
    return frames


def text_of(job: Job, prompts: Prompts) -> pd.DataFrame:
    """The prompt's tokens as text, for figures that show them: ``sample_id``, ``position``, ``text``."""
    words = pieces(prompts.encoder(job.cell.model).tokenizer, job.row.tokens)
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
