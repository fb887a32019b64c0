"""Single costs out of stored rows: of a policy, a quantity, a size."""

from __future__ import annotations

import pandas as pd

from harness.measured import formulas
from harness.measured.efficiency import NotMeasuredError
from harness.measured.table import Value

KIBI = 1024.0


def speeds_of(name: str, part: pd.DataFrame, dense: pd.DataFrame) -> tuple[Value, ...]:
    """Name, prompt tokens/s, of dense, new tokens/s, of dense, K and V in KiB, state in KiB, of dense's memory."""
    tokens, new = widest(part, "prompt_tokens"), int(part["new_tokens"].max())
    prefill, decode = value_of(part, "prefill_seconds"), value_of(part, "decode_seconds", new)
    kept, state = value_of(part, "kv_bytes"), value_of(part, "state_bytes")
    return (
        name, tokens / prefill, value_of(dense, "prefill_seconds") / prefill,
        new / decode, value_of(dense, "decode_seconds", new) / decode,
        kept / KIBI, state / KIBI, (kept + state) / value_of(dense, "kv_bytes"),
    )  # fmt: skip


def of_policy(rows: pd.DataFrame, policy: str) -> pd.DataFrame:
    """The rows of one policy. Raises `NotMeasuredError` where there are none."""
    found = rows[rows["policy"] == policy]
    if found.empty:
        raise NotMeasuredError(
            f"Not measured: the run of costs has no {policy}; python -m scripts.efficiency measures it."
        )
    return found


def value_of(rows: pd.DataFrame, quantity: str, new: int | None = None) -> float:
    """The first value of a quantity, with ``new`` tokens where that matters."""
    found = rows[rows["quantity"] == quantity]
    found = found if new is None else found[found["new_tokens"] == new]
    return float(found["value"].iloc[0])


def of_size(rows: pd.DataFrame, policy: str, size: tuple[int, int]) -> tuple[float, float]:
    """Operations and seconds of a block at N slots and B tokens."""
    part = of_policy(rows[(rows["budget_slots"] == size[0]) & (rows["block_size"] == size[1])], policy)
    return value_of(part, "block_operations"), value_of(part, "block_seconds")


def widest(rows: pd.DataFrame, column: str) -> int:
    """The largest number of a column."""
    return int(rows[column].max())


def regimes_of(rows: pd.DataFrame) -> str:
    """The prompt regimes of the rows, in words."""
    return ", ".join(dict.fromkeys(rows["prompt"]))


def shape_of(rows: pd.DataFrame) -> formulas.Shape | None:
    """The shape of the model that was measured, where the formulas know it."""
    return formulas.SHAPES.get(str(rows["model"].iloc[0]))
