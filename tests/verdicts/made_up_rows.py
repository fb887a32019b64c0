"""A claim, and sample rows with scores that a test chooses, which it is tested on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.papers.cell_index import CellIndex
from harness.papers.claim_ledger import Claim, Comparison, MethodSpec
from harness.papers.claim_verdicts import Verdict, verdicts
from harness.papers.published import Scale

LADDER = ("2048", "4096", "6144", "8192")


def claim_of(kind: str = "above", **fields) -> Claim:
    """KeyDiff against SnapKV on Qasper at 2048, unless fields say otherwise."""
    given = {
        "left": (MethodSpec("keydiff"),),
        "right": (MethodSpec("snapkv"),),
        "task": ("qasper",),
        "budgets": ("2048",),
        "prompt": "blocked",
        "block_size": 128,
        "ladder": LADDER,
        **fields,
    }
    paper = given.pop("paper", "keydiff")
    asked = Comparison(kind, **given)
    return Claim("KD-00", paper, "A claim.", "ordering", ("llama-3.2-3b-instruct",), (), "", "", asked)


def rows_of(
    scores: Mapping[tuple[str, str], Iterable[float]],
    task: str = "longbench/qasper",
    metric: str = "qa_f1",
    model: str = "testbed",
    prompt: str = "blocked",
    block_size: int = 128,
    documents: Iterable[str] | None = None,
    **columns: Any,
) -> pd.DataFrame:
    """One cell for each (policy, budget) with these values, samples numbered from 0; ``columns`` are of each."""
    cells = [(policy, budget, np.asarray(list(values), dtype=float)) for (policy, budget), values in scores.items()]
    sizes = [len(values) for _, _, values in cells]
    own = np.concatenate([values for _, _, values in cells])

    def each(labels: Iterable[Any]) -> np.ndarray:
        return np.repeat(np.asarray(list(labels), dtype=object), sizes)

    columns = {"document": "" if documents is None else list(documents), **columns}
    return pd.DataFrame(
        {
            "cell_id": each(f"{model}|{policy}|{budget}|{prompt}|{block_size}|{task}" for policy, budget, _ in cells),
            "sample_id": [f"s{number}" for size in sizes for number in range(size)],
            "metric": metric,
            "value": own,
            "weight": 1.0,
            "invalid": "",
            "slots_requested": each(-1 if b == "full" else int(b.rstrip("%")) for _, b, _ in cells).astype(int),
            "coverage": own,
            "kv_bytes": 1000,
            "state_bytes": 0,
            "model": model,
            "policy": each(policy for policy, _, _ in cells),
            "budget": each(budget for _, budget, _ in cells),
            "prompt": prompt,
            "block_size": block_size,
            "task": task,
            "created": "2026-11-21T00:00:00",
            **{name: value if np.isscalar(value) else np.tile(value, len(cells)) for name, value in columns.items()},
        }
    )


def noisy(rng: np.random.Generator, difficulty: np.ndarray, shift: float, spread: float = 0.05) -> np.ndarray:
    """Scores of one cell: the samples' common difficulty, a shift of its own, and noise."""
    return difficulty + shift + rng.normal(0, spread, len(difficulty))


def verdict(claim: Claim, rows: pd.DataFrame, scale: Scale) -> Verdict:
    """The verdict on one claim alone, without a correction for other claims."""
    return verdicts([claim], CellIndex(rows), scale)[0]


def scores(shifts: dict[tuple[str, str], float], n: int = 60, seed: int = 0) -> dict[tuple[str, str], np.ndarray]:
    """Scores of cells, by policy and budget, with these shifts."""
    rng = np.random.default_rng(seed)
    difficulty = rng.uniform(0.2, 0.6, n)
    return {cell: noisy(rng, difficulty, shift) for cell, shift in shifts.items()}


def two(left: float, right: float, **more) -> pd.DataFrame:
    """KeyDiff and SnapKV at 2048 with these shifts."""
    return rows_of(scores({("keydiff", "2048"): left, ("snapkv/keydiff", "2048"): right}), **more)
