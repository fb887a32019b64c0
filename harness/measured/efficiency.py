"""Costs as rows: what ``python -m scripts.efficiency`` stores, one file a run, and how reports read it."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pandas as pd

from harness.errors import UserError
from harness.report.facts import readable

FOLDER = "efficiency"
CONDITIONS = ("model", "scale", "dtype", "threads", "git", "versions", "hardware", "device", "created")
# What a row says: the case, and one quantity of it with the smallest and the largest over the rounds.
CASE = ("item", "policy", "prompt", "block_size", "prompt_tokens", "new_tokens", "budget_slots", "budget")
COLUMNS = (*CASE, "quantity", "unit", "value", "low", "high", "repeats", *CONDITIONS)


class NotMeasuredError(UserError):
    """A table that cannot be made of what is stored. The message says why, and what would measure it."""


def save(rows: pd.DataFrame, results: Path) -> Path:
    """Write one run under a name that says when and what it is. Raises ValueError for rows outside of the schema."""
    if missing := set(COLUMNS) ^ set(rows.columns):
        raise ValueError(f"Rows of costs have exactly the columns of docs/results-schema.md; these differ: {missing}.")
    buffer = io.BytesIO()
    rows[list(COLUMNS)].to_parquet(buffer, index=False)
    day = str(rows["created"].iloc[0]).replace(":", "").replace("+0000", "Z")
    target = results / FOLDER / f"{day}-{hashlib.sha256(buffer.getvalue()).hexdigest()[:12]}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".part")
    partial.write_bytes(buffer.getvalue())
    return partial.replace(target)


def newest(results: Path, item: str, model: str = "") -> pd.DataFrame:
    """The rows of one item, all from the newest run that has it. Raises `NotMeasuredError` where none has."""
    for path in sorted((results / FOLDER).glob("*.parquet"), reverse=True):
        rows = pd.read_parquet(path)
        rows = rows[rows["item"] == item]
        if not rows.empty and (not model or set(rows["model"]) == {model}):
            return rows.reset_index(drop=True)
    raise NotMeasuredError(
        f"Not measured: no run of costs in {results / FOLDER} has {item}; python -m scripts.efficiency measures it."
    )


def conditions(rows: pd.DataFrame) -> tuple[str, ...]:
    """Where and how the rows of one run came about, as sentences."""
    first = rows.iloc[0]
    rounds = (
        f"{first['repeats']:d} rounds in which every case ran once" if "seconds" in "".join(rows["quantity"]) else ""
    )
    return tuple(
        filter(
            None,
            (
                f"Model {first['model']}, {first['dtype']}, one row at a time, random tokens.",
                f"{first['device']}, {first['threads']} threads, {readable(str(first['hardware']))}.",
                f"Times are medians of {rounds}, dense among them." if rounds else "",
                f"Measured {first['created']} at commit {first['git'] or 'unknown'}; {first['versions']}.",
            ),
        )
    )
