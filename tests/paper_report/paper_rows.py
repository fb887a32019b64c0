"""Rows of every cell that an item's experiment file lists, with scores that a test knows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from harness.papers.figures.figure_cells import KEY, figure_cells
from harness.papers.published import Scale, model_of

SAMPLES = 8
Scores = Callable[[str, str, str], np.ndarray]  # (policy, task, budget) -> a value for each sample


def drawn_at_random(policy: str, task: str, budget: str) -> np.ndarray:
    """Scores between 0.2 and 0.8, others for each cell."""
    return np.random.default_rng(zlib.crc32(f"{policy}{task}{budget}".encode())).uniform(0.2, 0.8, SAMPLES)


def cell_rows(
    key: tuple[Any, ...], values: np.ndarray, metric: str, model: str = "testbed", **more: Any
) -> pd.DataFrame:
    """The rows of one cell, as `harness.store.loading.load_rows` gives them."""
    own = dict(zip(KEY, key, strict=True))
    share = own["budget"].endswith("%")
    config = {"budget": {"share": 0.5 if share else None, "share_of": own["share_of"] or "prompt"}, "task": {}}
    dense = own["policy"] == "dense"
    labels = {name: value for name, value in own.items() if name != "share_of"}
    slots = -1 if dense else int(own["budget"].rstrip("%")) * (2 if share else 1)
    return pd.DataFrame(
        {
            "cell_id": f"{zlib.crc32(repr((key, model)).encode()):016x}",
            "sample_id": [f"s{number}" for number in range(len(values))],
            "metric": metric,
            "value": values,
            "weight": 1.0,
            "prediction": "said",
            "reference": "meant",
            "document": "",
            "invalid": "",
            "prompt_tokens": 200,
            "new_tokens": 4,
            "slots_requested": slots,
            "slots_kept_max": 200 if dense else slots,
            "slots_kept_mean": 200.0 if dense else float(slots),
            "slots_peak": 200,
            "kv_bytes": 200 * 64 if dense else slots * 64,
            "state_bytes": 0,
            "tokens_evicted": 0.0 if dense else 100.0,
            "coverage": 1.0 if dense else 0.5,
            "model": model,
            "dtype": "float32",
            "seed": 0,
            "config": json.dumps(config),
            "git": "0123abc",
            "versions": "torch 2.13.0",
            "hardware": "2 cores, 8 GiB",
            "device": "cpu",
            "created": "2026-11-21T10:00:00",
            **labels,
            **more,
        }
    )


def rows_of(
    paper: str, item: str, metric: str = "string_match", scores: Scores = drawn_at_random, scale: Scale = "mini"
) -> pd.DataFrame:
    """Rows of an item at a scale of ours, with a dense cell for each of its tasks."""
    asked = figure_cells(paper, item, scale)
    first = asked.keys[0]
    dense = [("dense", task, "full", "", *first[4:]) for task in asked.values("task")]
    frames = []
    for key in dict.fromkeys([*dense, *asked.keys]):
        policy, task, budget = key[:3]
        frames.append(cell_rows(key, scores(policy, task, budget), metric, model_of(scale)))
    return pd.concat(frames, ignore_index=True)
