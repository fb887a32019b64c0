"""A sweep that takes a second, and workers on it that are forked, so that none has to import torch anew."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import torch
from composed import composed
from omegaconf import OmegaConf
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from harness.cli.error_messages import errors_in_plain_words
from harness.config.cell import Cell
from harness.config.model_files import BUNDLED
from harness.engine.engine import Engine
from harness.runner.job_spec import JobSpec
from harness.runner.progress import Progress
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.store.loading import load_rows
from harness.store.store import Store

# 198 to 200 tokens, all in the seventh block of 32: prompts that end in different blocks are not read together.
TASK = ["task=niah", "task.lengths=[200]", "task.depths=[50]", "task.max_new_tokens=3", "block_size=32"]
POLICIES = ("sink", "h2o")
SAMPLES = 12
NOT_REPEATABLE = ("created", "worker")  # columns that clocks and names fill


def saved_model(folder: Path) -> Path:
    """A random model of two layers with the testbed's tokenizer."""
    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model("llama", vocab_size=4096, num_key_value_heads=2, initializer_range=0.3, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(BUNDLED / "testbed").save_pretrained(folder)
    return folder


@cache
def cells(model: Path, samples: int = SAMPLES) -> tuple[Cell, ...]:
    words = [*TASK, f"task.repeats={samples}", "model=hf", f"model.path={model}", "model.dtype=float32", "budget=32"]
    configs = [composed(*words, f"policy={policy}") for policy in POLICIES]
    return tuple(Cell.parse(OmegaConf.to_container(config, resolve=True)) for config in configs)


def job_spec(model: Path, results: Path, samples: int = SAMPLES, **changes: object) -> JobSpec:
    settings = replace(RunSettings(batch_rows=4, lease=30.0), **changes)
    return JobSpec(cells(model, samples), results, "cpu", settings)


def worked(what: JobSpec):
    return what.compute(Prompts(), Progress(shown=False))


def forked(
    what: JobSpec, slow: float = 0.0, stderr: int = 2, begins: Callable[[int], None] = lambda number: None
) -> multiprocessing.Process:
    """A worker in a process of its own, ``slow`` seconds longer at each batch.

    ``stderr``: the file descriptor that it complains to. ``begins``: called in it with 1, 2, … before each batch.
    """
    arguments = (what, slow, stderr, begins)
    process = multiprocessing.get_context("fork").Process(target=_work, args=arguments, daemon=True)
    process.start()
    return process


def _work(what: JobSpec, slow: float, stderr: int, begins: Callable[[int], None]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    sys.stderr = os.fdopen(stderr, "w", buffering=1, closefd=False)
    generate, batches = Engine.generate, itertools.count(1)

    def slowly(self, *arguments):
        begins(next(batches))
        time.sleep(slow)
        return generate(self, *arguments)

    Engine.generate = slowly
    try:
        with errors_in_plain_words():
            worked(what)
    except SystemExit as end:
        os._exit(end.code)
    os._exit(0)


def table(results: Path) -> pd.DataFrame:
    """Every row of a results folder, the columns that must be the same whoever has computed them."""
    rows = load_rows(results)
    columns = [name for name in rows.columns if name not in NOT_REPEATABLE]
    return rows[columns].sort_values(["cell_id", "sample_id", "metric"], ignore_index=True)


def times_stored(results: Path) -> pd.Series:
    """For each cell and sample: in how many parts it stands."""
    store = Store(results / "runs")
    keys = [(cell, sample) for cell in store.cells() for part in store.parts(cell) for sample in part.samples]
    return pd.Series(keys, dtype=object).value_counts()


def locks_held(results: Path) -> list[Path]:
    return [file for file in (results / "runs" / ".work").glob("*/*.json") if not file.name.startswith(".")]


def wait_until(reached, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
