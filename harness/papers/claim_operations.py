"""Quantities that claims are tested on and that are counts of operations: by formula, or counted. No test is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from harness.papers.cell_index import NoCellError
from harness.papers.efficiency_rows import block_cost, newest_rows
from harness.papers.flop_formulas import (
    LLAMA_3_1_8B,
    FlopFormula,
    caote_flop,
    decode_flop,
    fastcaote_flop,
    prefill_flop,
)
from harness.papers.measured_tables import NotMeasuredError
from harness.papers.published import presets

PROMPTS, CACHES = (4096, 8192, 32768), (512, 1024)  # tokens of CAOTE's Tables 6 and 7
FLOOR = "window"  # evicts the oldest and scores nothing


def overheads(whole: FlopFormula, lengths: tuple[int, ...]) -> dict[str, float]:
    """What CAOTE and FastCAOTE add, as a share of the whole by their paper's formulas: the greatest over lengths."""
    formulas = {"caote": caote_flop, "fastcaote": fastcaote_flop}
    return {
        name: max(added(n, LLAMA_3_1_8B) / whole(n, LLAMA_3_1_8B) for n in lengths) for name, added in formulas.items()
    }


def scoring_operations(results: Path) -> dict[str, float]:
    """Counted operations that scoring adds to one block, by method, at the smallest cache and block."""
    added = _added(results)
    return {name: min(each.values()) for name, each in added.items()}


def scoring_growth(results: Path) -> dict[str, float]:
    """How scoring grows against N + B, 1 where it is proportional: of the larger sizes the one farthest from 1."""
    out = {}
    for name, each in _added(results).items():
        (slots, block), *larger = sorted(each, key=lambda size: (size[1], size[0]))
        growth = [each[size] / each[slots, block] / (sum(size) / (slots + block)) for size in larger]
        out[name] = max(growth, key=lambda ratio: abs(ratio - 1))
    return out


def _added(results: Path) -> dict[str, dict[tuple[int, int], float]]:
    """By method, and N slots and B tokens, what scoring a block adds. Raises `NoCellError` where it is not counted."""
    try:
        rows = newest_rows(results, "keydiff/table_4")
        sizes = sorted(set(zip(map(int, rows["budget_slots"]), map(int, rows["block_size"]), strict=True)))
        names = {name: presets("keydiff", name, "")[0] for name in ("keydiff", "tova", "h2o", "snapkv")}
        floor = {size: block_cost(rows, FLOOR, size)[0] for size in sizes}
        return {
            name: {size: block_cost(rows, policy, size)[0] - floor[size] for size in sizes}
            for name, policy in names.items()
        }
    except NotMeasuredError:
        raise NoCellError("the counts keydiff/table_4: python -m scripts.efficiency takes them") from None


QUANTITIES: Mapping[str, Callable[[Path], dict[str, float]]] = {
    "prefill_overhead": lambda results: overheads(prefill_flop, PROMPTS),
    "generation_overhead": lambda results: overheads(decode_flop, CACHES),
    "scoring_operations": scoring_operations,
    "scoring_growth": scoring_growth,
}


def exact_columns(name: str, results: Path) -> dict[str, pd.Series]:
    """The columns of a quantity, each of a single value."""
    return {column: pd.Series([value]) for column, value in QUANTITIES[name](results).items()}
