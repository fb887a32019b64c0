"""A plain table: what was measured, under which conditions. How it looks is the report's affair."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.errors import UserError
from harness.report.ledger_table import readable

Value = str | int | float | None  # None: there is nothing to say; NaN: it was asked for and is not a number


@dataclass(frozen=True)
class MeasuredTable:
    """Lines under columns, with what a reader must know to use them.

    ``name``: for file names, unique within its item (``keydiff-scoring``). ``conditions``: sentences, never empty.
    ``columns``: titles with their units; the first column names the line. ``lines``: one value for each column.
    """

    name: str
    title: str
    caption: str
    conditions: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        if not self.conditions:
            raise ValueError(f"Table '{self.name}' says nothing about its conditions: a number without them is no use.")
        for line in self.lines:
            if len(line) != len(self.columns):
                raise ValueError(
                    f"A line of table '{self.name}' has {len(line)} values for {len(self.columns)} columns."
                )

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The lines as a page shows them; the numbers themselves, for a CSV, are in ``lines``."""
        return tuple(tuple(text_of(value) for value in line) for line in self.lines)


def text_of(value: Value) -> str:
    """Three significant digits, thousands with commas; a dash for what is not a number, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:,d}" if isinstance(value, int) else f"{value:,.3g}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.2e}"


# Operations by the papers' own formulas, for any model's shape.
#
# KeyDiff, Appendix A.2.1, Eq. A.1; CAOTE, Appendix C, Eqs. 32 to 35.


@dataclass(frozen=True)
class Shape:
    """Widths of a Llama. ``head``: of one head; ``kv``: of all KV heads together; ``inner``: of the feed-forward."""

    layers: int
    hidden: int
    head: int
    kv: int
    inner: int
    vocabulary: int

    @property
    def kv_heads(self) -> int:
        """H."""
        return self.kv // self.head


LLAMA_3_1_8B = Shape(layers=32, hidden=4096, head=128, kv=1024, inner=14336, vocabulary=128256)
TESTBED = Shape(layers=6, hidden=256, head=32, kv=64, inner=704, vocabulary=4096)
Whole = Callable[[int, Shape], int]  # tokens to FLOP of everything
SHAPES = {"llama3.1-8b": LLAMA_3_1_8B, "testbed": TESTBED}


def keydiff_scores(keys: int, width: int) -> int:
    """FLOP of one head's scores over so many keys of this width, without the selection (Eq. A.1)."""
    return (6 * width + 18) * keys + width + 17


def prefill(tokens: int, shape: Shape) -> int:
    """FLOP of reading a prompt, as CAOTE counts them (Eq. 32)."""
    d = shape.hidden
    return 2 * shape.layers * tokens * d * (d + shape.kv + shape.inner + 2 * tokens + 6) + d * shape.vocabulary


def generation(tokens: int, shape: Shape) -> int:
    """FLOP of one token over a cache of so many, as CAOTE counts them (Eq. 33)."""
    d = shape.hidden
    return 2 * shape.layers * d * (d + shape.kv + shape.inner + 2 * tokens + 6) + d * shape.vocabulary


def caote(tokens: int, shape: Shape) -> int:
    """FLOP that CAOTE adds over so many tokens (Eq. 34)."""
    return shape.layers * tokens * (7 * shape.hidden + 3)


def fastcaote(tokens: int, shape: Shape) -> int:
    """FLOP that FastCAOTE adds over so many tokens (Eq. 35)."""
    return shape.layers * tokens * (4 * shape.hidden + 3) + shape.layers


# Costs as rows: what ``python -m scripts.efficiency`` stores, one file a run, and how reports read it.


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


# Single costs out of stored rows: of a policy, a quantity, a size.


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


def shape_of(rows: pd.DataFrame) -> Shape | None:
    """The shape of the model that was measured, where the formulas know it."""
    return SHAPES.get(str(rows["model"].iloc[0]))
