"""Quantities that claims are tested on and that are costs: speeds and times, with a value per round and case.

A case is a size that is measured (a length of the prompt, a budget). In a round every case of every method runs once,
so that their ratios are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.papers.cell_index import NoCellError
from harness.papers.efficiency_rows import by_round, newest_rows
from harness.papers.measured_tables import NotMeasuredError
from harness.papers.published import presets

ITEMS = {"buzz": "buzz/throughput", "hashevict": "hashevict/table_1", "kvec": "kvec/table_9"}
CASE = ["policy", "prompt_tokens", "budget"]


@dataclass(frozen=True)
class StoredCosts:
    """The rows of one item of a paper. ``budgets``: those that count, where the item has several."""

    paper: str
    rows: pd.DataFrame
    budgets: tuple[str, ...]

    @staticmethod
    def load(paper: str, results: Path, scale: str, budgets: tuple[str, ...]) -> StoredCosts:
        """Of the newest run. Raises `NoCellError` where there is none of this scale."""
        item = ITEMS[paper]
        try:
            rows = newest_rows(results, item, scale)
        except NotMeasuredError:
            how = "python -m scripts.efficiency" + ("" if scale == "mini" else f" --scale {scale}")
            raise NoCellError(f"the costs {item} at scale={scale}: {how} measures them") from None
        return StoredCosts(paper, rows, budgets)

    def cases(self, method: str) -> list[pd.DataFrame]:
        """The rows of each size, in the order in which they ran; FastGen's settings stand for the budgets in order.

        Raises `NoCellError` for a method without any.
        """
        name = self.rows["policy"].str.partition(" (")[0]
        own = self.rows[name.isin(presets(self.paper, method, ""))]
        if set(own["budget"]) & set(self.budgets):
            own = own[own["budget"].isin(self.budgets)]
        if own.empty:
            raise NoCellError(f"{method} in the costs {ITEMS[self.paper]}")
        return [part for _, part in own.groupby(CASE, sort=False)]

    def seconds(self, part: pd.DataFrame, quantity: str, new: int | None = None) -> pd.Series:
        """A time of one case by round. Raises `NoCellError` where a run stored medians alone."""
        try:
            return by_round(part, str(part["policy"].iloc[0]), quantity, new)
        except NotMeasuredError:
            raise NoCellError(f"the single rounds of the costs {ITEMS[self.paper]}") from None


def prompt_speeds(costs: StoredCosts, methods: Sequence[str]) -> dict[str, pd.Series]:
    """Prompt tokens per second."""
    return _by_case(costs, methods, lambda part: _prompt_tokens(part) / costs.seconds(part, "prefill_seconds"))


def decode_speeds(costs: StoredCosts, methods: Sequence[str]) -> dict[str, pd.Series]:
    """New tokens per second, over the longest generation."""

    def speed(part: pd.DataFrame) -> pd.Series:
        new = int(part["new_tokens"].max())
        return new / costs.seconds(part, "decode_seconds", new)

    return _by_case(costs, methods, speed)


def decode_seconds(costs: StoredCosts, methods: Sequence[str]) -> dict[str, pd.Series]:
    """Milliseconds per new token, over the longest generation."""
    speeds = decode_speeds(costs, methods)
    return {name: 1000 / speed for name, speed in speeds.items()}


def time_overheads(costs: StoredCosts, methods: Sequence[str]) -> dict[str, pd.Series]:
    """K-VEC's time over SnapKV's, minus one: prompt and generation, after the fewest and after the most new tokens."""
    lengths = sorted(set(costs.rows["new_tokens"]) - {0})

    def total(new: int) -> Callable[[pd.DataFrame], pd.Series]:
        return lambda part: costs.seconds(part, "prefill_seconds") + costs.seconds(part, "decode_seconds", new)

    out = {}
    for name, new in (("after the fewest new tokens", lengths[0]), ("after the most new tokens", lengths[-1])):
        taken = _by_case(costs, ("kvec", "snapkv"), total(new))
        out[name] = taken["kvec"] / taken["snapkv"] - 1
    return out


def _prompt_tokens(part: pd.DataFrame) -> int:
    return int(part["prompt_tokens"].iloc[0])


def _by_case(
    costs: StoredCosts, methods: Sequence[str], measure: Callable[[pd.DataFrame], pd.Series]
) -> dict[str, pd.Series]:
    """By method, the measure of every case in every round; cases of two methods belong together by their order."""
    parts = {name: costs.cases(name) for name in methods}
    if len({len(each) for each in parts.values()}) > 1:
        raise NoCellError(f"the same sizes of {', '.join(methods)} in the costs {ITEMS[costs.paper]}")
    return {name: _side_by_side([measure(part) for part in each]) for name, each in parts.items()}


def _side_by_side(cases: Sequence[pd.Series]) -> pd.Series:
    """One series of all cases, by names of a case and a round."""
    named = [each.set_axis([f"case {i}, round {number}" for number in each.index]) for i, each in enumerate(cases)]
    together: pd.Series = pd.concat(named)
    return together


QUANTITIES: Mapping[str, Callable[[StoredCosts, Sequence[str]], dict[str, pd.Series]]] = {
    "prompt_speed": prompt_speeds,
    "decode_speed": decode_speeds,
    "decode_seconds": decode_seconds,
    "time_overhead": time_overheads,
}
