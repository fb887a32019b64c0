"""Rows and stored diagnostics for every figure, made without the models that the papers use."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd
from diagnostics.runs import LENGTH, frames, model, policy
from engine.tiny import prompt

from harness.analysis.diagnostics import diagnose
from harness.config import identity
from harness.engine.requests import Prompting
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_index import FIGURES
from harness.store.store import Store

SAMPLES = 3
METRICS = {
    "buzz/xsum": ("rouge_l", "rouge_1", "rouge_2"),
    "buzz/cnn_dailymail": ("rouge_l", "rouge_1", "rouge_2"),
    "buzz/self_bleu": ("self_bleu",),
    "lost_in_the_middle/buzz": ("best_subspan_em", "exact_match"),
    "hashevict/gsm8k_free_response": ("rougeL", "bert_f1", "judge"),
    "hashevict/medqa_free_response": ("rougeL",),
    "longbench_mini/summary": ("rouge_l",),
}
DIAGNOSTICS = sorted({name for plan in FIGURES.values() for name in plan.diagnostics.names})


def keys_of(paper: str, item: str, scale: str) -> list[tuple]:
    """The labels of the figure's cells and of their baselines; of long lists one budget a task."""
    asked = figure_cells(paper, FIGURES[paper, item].rows_of or item, scale)
    keys = list(asked.keys)
    if len(keys) > 40:
        keys = list({(key[0], key[1]): key for key in keys}.values())
    dense = {("dense", key[1], "full", "", key[4], key[5]) for key in keys}
    floor = {("random", *key[1:]) for key in keys}
    return [*dict.fromkeys((*keys, *sorted(dense), *sorted(floor)))]


def cell_of(key: tuple, name: str, scale: str) -> dict:
    """The labels of one cell."""
    share = {"share": 0.5, "share_of": key[3], "slots": None} if key[3] else {"share": None, "slots": 1}
    labels = dict(zip(("policy", "task", "budget", "prompt", "block_size"), (*key[:3], *key[4:]), strict=True))
    config = {"policy": key[0], "budget": share, "task": {}, "key": list(key), "model": name}
    return {**labels, "model": name, "config": config, "cell_id": identity.hash_data(config)[:16], "dtype": "float32"}


def rows_of(keys: Iterable[tuple], scale: str) -> pd.DataFrame:
    """Random scores of these cells, the same in every run."""
    out = []
    for key in keys:
        cell = cell_of(key, "testbed" if scale == "mini" else "llama3-8b", scale)
        rng = random.Random(str(key))
        for number in range(SAMPLES):
            for metric in METRICS.get(key[1], ("string_match",)):
                out.append({**cell, **_sample(number, metric, rng, key[0] == "dense")})
    table = pd.DataFrame(out)
    return table.assign(config=table["config"].map(json.dumps))


def _sample(number: int, metric: str, rng: random.Random, dense: bool) -> dict:
    value = rng.choice((0.0, 1.0)) if metric == "string_match" else rng.random()
    return {
        "sample_id": f"L512-r{number}", "metric": metric, "value": value, "weight": 1.0,
        "prediction": f"A summary. It has {rng.randrange(9)} words. It has words.", "reference": "The words.",
        "document": f"d{number}", "invalid": "", "axis_length": 512 + 512 * (number % 2), "axis_depth": 10 * number,
        "axis_gold_at": (0, 4, 9)[number], "prompt_tokens": 400 + 900 * number, "slots_requested": -1 if dense else 64,
        "slots_kept_max": 64, "slots_kept_mean": 64.0, "slots_peak": 96, "kv_bytes": 1, "state_bytes": 0,
        "tokens_evicted": 10.0, "coverage": rng.random(), "seed": 0, "git": "", "versions": "", "hardware": "",
        "device": "cpu", "created": "2026-11-21",
    }  # fmt: skip


@cache
def measured(name: str, length: int) -> dict[str, pd.DataFrame]:
    """All diagnostics of a tiny model under one policy."""
    if length == LENGTH:
        return frames(name, 10, *DIAGNOSTICS)
    tokens = prompt(length)
    return diagnose(model(), tokens, policy(name), 10, Prompting("blocked", 8), DIAGNOSTICS)


def store_with_diagnostics(folder: Path, figures: Iterable[tuple[str, str]], scale: str) -> Store:
    """A store beside which the cells of these figures are diagnosed on two samples each."""
    store = Store(folder / "diagnostics")
    needed: dict[tuple, set[str]] = {}
    for figure in figures:
        for key in figure_cells(*figure, scale).keys:
            needed.setdefault(key, {"text"}).update(FIGURES[figure].diagnostics.names)
    for number, (key, names) in enumerate(needed.items()):
        cell = cell_of(key, "testbed" if scale == "mini" else "llama3-8b", scale)
        store.describe(cell["cell_id"], {**cell, "seed": 0, "created": "2026-11-21"})
        for length in (LENGTH, LENGTH + 8):
            own = measured(("keydiff", "sink")[number % 2], length)
            words = pd.DataFrame({"position": range(length), "text": [f" word{place}" for place in range(length)]})
            for name, frame in ((name, frame) for name, frame in {**own, "text": words}.items() if name in names):
                file = store.root / cell["cell_id"] / name / f"L{length}-r0.parquet"
                file.parent.mkdir(parents=True, exist_ok=True)
                frame.assign(sample_id=file.stem).to_parquet(file, index=False)
    return Store(folder / "runs")
