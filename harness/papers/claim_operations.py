"""Quantities that claims are tested on and that are computed: operations by formula or counted, and an identity.

What is computed needs no statistical test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
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


@cache
def kept_by_both(heads: int = 64, tokens: int = 1024, size: int = 64, seed: int = 0) -> dict[str, float]:
    """The share of keys, among the least similar half of a head, that KeyDiff's mean key and all pairs both choose.

    Σ_j cos(k_i, k_j) is n times the anchor's length times cos(k_i, anchor), so that both order the keys of a head alike
    whatever the keys are (docs/policies.md 3.15); here of random keys around a common direction, in double precision.
    """
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((heads, tokens, size)) * rng.lognormal(0, 0.5, (heads, tokens, 1)) + 1.0
    directions = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
    pairs = (directions @ directions.transpose(0, 2, 1)).sum(axis=-1)
    anchor = directions.mean(axis=1, keepdims=True)
    cosines = (directions * anchor).sum(axis=-1) / np.linalg.norm(anchor, axis=-1)
    by_pairs, by_anchor = (each.argsort(axis=-1).argsort(axis=-1) < tokens // 2 for each in (pairs, cosines))
    return {"keys that both keep": float((by_pairs & by_anchor).sum() / by_pairs.sum())}


QUANTITIES: Mapping[str, Callable[[Path], dict[str, float]]] = {
    "prefill_overhead": lambda results: overheads(prefill_flop, PROMPTS),
    "generation_overhead": lambda results: overheads(decode_flop, CACHES),
    "scoring_operations": scoring_operations,
    "scoring_growth": scoring_growth,
    "kept_by_both": lambda results: kept_by_both(),
}


def exact_columns(name: str, results: Path) -> dict[str, pd.Series]:
    """The columns of a quantity, each of a single value."""
    return {column: pd.Series([value]) for column, value in QUANTITIES[name](results).items()}
