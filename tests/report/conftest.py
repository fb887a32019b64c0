"""Synthetic rows that follow docs/design/rows.md exactly, with outcomes that are known beforehand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

POLICIES = (
    "window",
    "sink",
    "h2o/keydiff",
    "tova/keydiff",
    "snapkv/keydiff",
    "keydiff",
    "caote_h2o",
    "fastcaote_h2o",
)
LENGTHS, DEPTHS, REPEATS = (512, 1024, 2048), (0.0, 0.25, 0.5, 0.75, 1.0), 3
Rows = Callable[..., pd.DataFrame]


def cell_columns(
    policy: str, budget: str, task: str, context: dict[str, Any], config: dict[str, Any]
) -> dict[str, Any]:
    identity = {"policy": {"name": policy}, "budget": budget, "task": {"name": task}, **context, **config}
    return {
        "cell_id": f"{zlib.crc32(json.dumps(identity).encode()):08x}",
        "model": "testbed",
        "policy": policy,
        "budget": budget,
        "prompt": "blocked",
        "block_size": 32,
        "task": task,
        "dtype": "float32",
        "seed": 0,
        "config": json.dumps(identity),
        "git": "0123abc",
        "versions": json.dumps({"torch": "2.13.0", "transformers": "5.23.0"}),
        "hardware": "2 cores, 8 GiB",
        "device": "cpu",
        "created": "2026-05-04T10:00:00+00:00",
        **context,
    }


def ledger_columns(budget: str, prompt_tokens: int) -> dict[str, Any]:
    dense = budget == "full"
    slots = prompt_tokens * int(budget[:-1]) // 100 if budget.endswith("%") else -1 if dense else int(budget)
    kept = prompt_tokens if dense else min(slots, prompt_tokens)
    return {
        "prompt_tokens": prompt_tokens,
        "new_tokens": 8,
        "slots_requested": slots,
        "slots_kept_max": kept,
        "slots_kept_mean": float(kept),
        "slots_peak": kept + (0 if dense else 32),
        "kv_bytes": kept * 2 * 4 * 2 * 32 * 4,
        "state_bytes": 0 if dense else kept * 16,
        "tokens_evicted": float(prompt_tokens - kept),
        "coverage": kept / prompt_tokens,
        "seconds": 0.01,
        "invalid": "",
    }


def niah_samples(policy: str, budget: str) -> list[dict[str, Any]]:
    """Dense misses one in eight; a policy loses the more, the smaller its budget, and shallow needles first."""
    place = 0 if policy == "dense" else 1 + POLICIES.index(policy) if policy in POLICIES else 4
    share = 1.0 if policy == "dense" else float(budget.rstrip("%")) / (100 if "%" in budget else 512)
    samples = []
    for repeat in range(REPEATS):
        for length in LENGTHS:
            for depth in DEPTHS:
                number = len(samples)
                luck = (number * 37 % 45) / 45
                right = luck < 0.88 and (
                    policy == "dense" or luck < 0.35 + 0.5 * share + 0.06 * place + 0.2 * depth - 0.2
                )
                samples.append(
                    {
                        "sample_id": f"needle-{length}-{depth}-{repeat}",
                        "metric": "exact_match",
                        "value": float(right),
                        "weight": 1.0,
                        "prediction": "7421" if right else "the whale",
                        "reference": "7421",
                        "document": f"book-{number % 9}",
                        "axis_length": length,
                        "axis_depth": depth,
                    }
                    | ledger_columns(budget, length)
                )
    return samples


def perplexity_samples(policy: str, budget: str) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)  # the same texts for every policy
    place = POLICIES.index(policy) if policy in POLICIES else 4
    share = 1.0 if policy == "dense" else float(budget.rstrip("%")) / (100 if "%" in budget else 512)
    loss = 0.0 if policy == "dense" else 0.5 * (1.1 - share) * (1.3 - 0.1 * place)
    return [
        {
            "sample_id": f"window-{i}",
            "metric": "nll",
            "value": float(2.2 + rng.normal(0, 0.15) + loss * rng.uniform(0.9, 1.1)),
            "weight": 1000.0 + 10 * i,
            "prediction": "",
            "reference": "",
            "document": f"book-{i // 2}",
            "axis_length": np.nan,
            "axis_depth": np.nan,
        }
        | ledger_columns(budget, 1024)
        for i in range(16)
    ]


TASKS = {"niah": niah_samples, "perplexity": perplexity_samples}


def build(
    policies: Sequence[str] = POLICIES,
    budgets: Sequence[str] = ("64", "128", "256"),
    tasks: Sequence[str] = ("niah", "perplexity"),
    dense: bool = True,
    context: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> pd.DataFrame:
    cells = [("dense", "full")] * dense + [(policy, budget) for policy in policies for budget in budgets]
    return pd.DataFrame(
        [
            sample | cell_columns(policy, budget, task, context or {}, config or {})
            for task in tasks
            for policy, budget in cells
            for sample in TASKS[task](policy, budget)
        ]
    )


@pytest.fixture
def make() -> Rows:
    """Builds rows for the given policies, budgets, tasks and context."""
    return build


@pytest.fixture(scope="session")
def rows() -> pd.DataFrame:
    """Dense and eight policies at three budgets on two tasks. Tests copy before they change anything."""
    return build()
