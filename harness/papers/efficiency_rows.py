"""Rows of time, memory and FLOP, as ``python -m scripts.efficiency`` stores them: one file per run.

A row is one quantity of one case, and holds every measurement of it:

- ``item``: ``hashevict/table_1``, ``kvec/table_9``, ``keydiff/table_4``, ``caote/table_6``, ``caote/table_7``,
  ``<paper>/throughput``, ``leaderboard/throughput``.
- ``policy``: as in the rows of scores. HashEvict Table 1: ``dense``, ``hashevict/paper``, ``l2/hashevict``,
  ``h2o/coldcompress``, ``scissorhands``, ``fastgen (recovery=0.7)``; K-VEC Table 9: ``dense``, ``snapkv/kvec``,
  ``kvec/testbed`` (``kvec`` on other models); ``buzz/throughput``: ``dense``, ``buzz``, ``buzz/logn``, ``h2o/buzz``.
- ``prompt``, ``block_size``, ``prompt_tokens``, ``budget_slots``, ``budget`` (``30%``, or empty): the case.
- ``quantity``, ``new_tokens``: ``prefill_seconds`` (0 new tokens: up to the first new one), ``decode_seconds`` (from
  there until ``new_tokens`` more; K-VEC Table 9 has four lengths), ``kv_bytes``, ``state_bytes``, ...
- ``rounds``: a list of floats, one measurement a round, in the order of the rounds. In a round every case runs once;
  cases of one item and size generate in turn, a token each (files before 2026-11-28: one after another), so that the
  ratio of element i of two cases is a paired one: `by_round`.
- ``value``, ``low``, ``high``, ``repeats``: median, smallest, largest and number of ``rounds``. Counts (operations) are
  the same each time and are taken once.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pandas as pd

from harness.papers.measured_tables import NotMeasuredError, Ranged, Value
from harness.report.rows import with_plain_texts
from harness.report.run_facts import readable

FOLDER = "efficiency"
BOARD_ITEM = "leaderboard/throughput"
CONDITIONS = ("model", "scale", "dtype", "threads", "git", "versions", "hardware", "device", "created")
# What a row says: the case, and one quantity of it with the smallest and the largest over the rounds.
CASE = ("item", "policy", "prompt", "block_size", "prompt_tokens", "new_tokens", "budget_slots", "budget")
COLUMNS = (*CASE, "quantity", "unit", "value", "low", "high", "repeats", "rounds", *CONDITIONS)


def save_rows(rows: pd.DataFrame, results: Path) -> Path:
    """Write one run as a file named by time and content hash. Raises ValueError for rows outside of the schema."""
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


def newest_rows(results: Path, item: str, scale: str = "") -> pd.DataFrame:
    """The rows of one item, all from the newest run (of that scale) that has it. Raises `NotMeasuredError` for none."""
    for rows in _newest_first(results, item):
        if not scale or set(rows["scale"]) == {scale}:
            return rows
    raise NotMeasuredError(
        f"Not measured: no run of costs in {results / FOLDER} has {item}; python -m scripts.efficiency measures it."
    )


def newest_by_model(results: Path, item: str) -> dict[str, pd.DataFrame]:
    """The rows of one item by the model that was timed, each from its newest run; empty where there are none."""
    found: dict[str, pd.DataFrame] = {}
    for rows in _newest_first(results, item):
        found.setdefault(str(rows["model"].iloc[0]), rows)
    return found


def _newest_first(results: Path, item: str) -> Iterator[pd.DataFrame]:
    """The rows of one item in each run that has it."""
    for path in sorted((results / FOLDER).glob("*.parquet"), reverse=True):
        rows = _stored_rows(path)
        rows = rows[rows["item"] == item]
        if not rows.empty:
            yield rows.reset_index(drop=True)


@lru_cache(maxsize=256)
def _stored_rows(path: Path) -> pd.DataFrame:
    """The rows of one run. Its file never changes: a part of its name is a hash of its content."""
    return with_plain_texts(pd.read_parquet(path))


def nearest_costs(results: Path, scale: str, item: str) -> pd.DataFrame:
    """The `newest_rows` of one item at a scale; of any scale where there are none of that one."""
    try:
        return newest_rows(results, item, scale)
    except NotMeasuredError:
        return newest_rows(results, item)


def run_conditions(rows: pd.DataFrame) -> tuple[str, ...]:
    """Where and how the rows of one run came about, as sentences."""
    first = rows.iloc[0]
    sentences = [
        f"Model {first['model']}, {first['dtype']}, one row at a time, random tokens.",
        f"{first['device']}, {first['threads']} threads, {readable(str(first['hardware']))}.",
        f"Measured {first['created']} at commit {first['git'] or 'unknown'}; {first['versions']}.",
    ]
    if "seconds" in "".join(rows["quantity"]):
        timed = rows[rows["quantity"].str.endswith("seconds")]
        rounds = f"{timed['repeats'].max():d} rounds in which every case ran once"
        sentences.insert(
            2, f"Times are medians of {rounds}, dense among them; [ ]: smallest and largest of the rounds."
        )
    return tuple(sentences)


# Single values of stored rows.


KIBI = 1024.0


def rows_of_policy(rows: pd.DataFrame, policy: str) -> pd.DataFrame:
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


def by_round(rows: pd.DataFrame, policy: str, quantity: str, new: int | None = None) -> pd.Series:
    """A quantity of one case, an element a round: the ratio of two of these is paired over rounds.

    ``rows``: of one item, size and budget, so that the policy has one such row (``new``: with so many new tokens); of
    several the first is taken. Raises `NotMeasuredError` where there is none, or an older run stored medians alone.
    """
    found = rows_of_policy(rows, policy)
    found = found[found["quantity"] == quantity]
    found = found if new is None else found[found["new_tokens"] == new]
    if found.empty or "rounds" not in found or found["rounds"].isna().any():
        raise NotMeasuredError(
            f"Not measured: the run of costs has no {quantity} of {policy} by round; python -m scripts.efficiency "
            "measures it."
        )
    values = pd.Series([float(each) for each in found["rounds"].iloc[0]])
    return values.rename_axis("round")


def rounds_of(part: pd.DataFrame, quantity: str, new: int | None = None) -> pd.Series:
    """The same of rows of one policy."""
    return by_round(part, str(part["policy"].iloc[0]), quantity, new)


def block_cost(rows: pd.DataFrame, policy: str, size: tuple[int, int]) -> tuple[float, float]:
    """Operations and seconds of a block at N slots and B tokens."""
    part = rows_of_policy(rows[(rows["budget_slots"] == size[0]) & (rows["block_size"] == size[1])], policy)
    return value_of(part, "block_operations"), value_of(part, "block_seconds")


def speed_line(name: str, part: pd.DataFrame, dense: pd.DataFrame) -> tuple[Value, ...]:
    """Name, prompt tokens/s, of dense, new tokens/s, of dense, K and V in KiB, state in KiB, of dense's memory."""
    tokens, new = largest(part, "prompt_tokens"), int(part["new_tokens"].max())
    prefill, decode = rounds_of(part, "prefill_seconds"), rounds_of(part, "decode_seconds", new)
    kept, state = value_of(part, "kv_bytes"), value_of(part, "state_bytes")
    return (
        name, Ranged.of(tokens / prefill), Ranged.of(rounds_of(dense, "prefill_seconds") / prefill),
        Ranged.of(new / decode), Ranged.of(rounds_of(dense, "decode_seconds", new) / decode),
        kept / KIBI, state / KIBI, (kept + state) / value_of(dense, "kv_bytes"),
    )  # fmt: skip


def largest(rows: pd.DataFrame, column: str) -> int:
    """The largest number of a column."""
    return int(rows[column].max())


def regimes_text(rows: pd.DataFrame) -> str:
    """The prompt regimes of the rows, in words."""
    return ", ".join(dict.fromkeys(rows["prompt"]))
