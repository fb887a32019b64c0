"""Rows with outcomes that are known beforehand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import pandas as pd

SLOT = 1000  # bytes of one slot over all layers and heads
PROMPT, NEW = 100, 5


def cell(
    policy: str,
    values: Sequence[float],
    *,
    budget: str = "25%",
    prompt: str = "blocked",
    block: int = 32,
    kept: float | None = None,
    state: int = 0,
    task: str = "niah",
    new: int = NEW,
    invalid: str = "",
) -> pd.DataFrame:
    """One cell whose samples score ``values``. ``kept``: slots at most; ``state``: bytes in each of them."""
    dense = policy == "dense"
    asked = -1 if dense else PROMPT * int(budget.rstrip("%")) // 100
    held = PROMPT + new if dense else kept if kept is not None else asked
    labels: dict[str, Any] = {
        "model": "testbed", "policy": policy, "budget": "full" if dense else budget, "prompt": prompt,
        "block_size": block if prompt in ("blocked", "simulated") else 0, "task": task, "dtype": "float32", "seed": 0,
    }  # fmt: skip
    config = json.dumps({**labels, "policy": {"name": policy}})
    return pd.DataFrame(
        {
            **labels, "cell_id": f"{zlib.crc32(config.encode()):08x}", "config": config, "git": "0123abc",
            "versions": "torch 2.13.0", "hardware": "2 cores", "device": "cpu",
            "created": "2026-05-04T10:00:00+00:00", "sample_id": f"s{number}", "metric": "string_match", "value": value,
            "weight": 1.0, "prediction": "", "reference": "", "document": "", "prompt_tokens": PROMPT,
            "new_tokens": new, "slots_requested": asked, "slots_kept_max": held, "slots_kept_mean": float(held),
            "slots_peak": held + (0 if dense else 32), "kv_bytes": int(held * SLOT), "state_bytes": int(held * state),
            "tokens_evicted": 0.0, "coverage": 1.0, "seconds": 0.1, "invalid": invalid,
        }
        for number, value in enumerate(values)
    )  # fmt: skip


def rows(*cells: pd.DataFrame) -> pd.DataFrame:
    """All of them, as `harness.store.loading.load_rows` would give them."""
    return pd.concat(cells, ignore_index=True)


def column(table: Any, name: str) -> dict[str, Any]:
    """By the first column, the values of another."""
    place = table.columns.index(name)
    return {line[0]: line[place] for line in table.lines}
