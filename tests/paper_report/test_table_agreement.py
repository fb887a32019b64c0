"""One agreement figure per table: Kendall's tau-b of the methods' order, with an interval from our samples."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from paper_rows import cell_rows, rows_of
from scipy.stats import kendalltau

from harness.papers.cell_index import CellIndex
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.merged_tables import merged
from harness.papers.paper_tables import PaperTables
from harness.papers.table_agreement import Agreement, agreement
from harness.store.store import Store

PRINTED = {"pyramidkv": -3.5, "snapkv": -2.5, "ada_snapkv": -2.1, "kvec": -1.1}  # K-VEC Table 7 at 0.25


def agreement_of(paper: str, item: str, rows: pd.DataFrame) -> Agreement | None:
    found = PaperTables(paper, CellIndex(rows), FigureDataOfItems(rows, Store(Path("nowhere")), "mini")).table(item)
    assert found is not None
    return agreement(merged(found))


def coverage_rows(values: dict[str, float], budget: str = "75%", samples: int = 8) -> pd.DataFrame:
    """Rows of K-VEC Table 7 at one eviction rate, with the coverage of each method."""
    found = []
    for key in dict.fromkeys(figure_cells("kvec", "Table 7", "mini").keys):
        method = next(name for name in ("pyramidkv", "ada_snapkv", "snapkv", "kvec") if key[0].startswith(name))
        if key[2] == budget:
            noise = np.random.default_rng(len(found)).normal(0, 0.02, samples)
            found.append(cell_rows(key, np.zeros(samples), "string_match").assign(coverage=values[method] + noise))
    return pd.concat(found, ignore_index=True)


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 1, 4, 3), (1, 3, 2, 4)])
def test_tau_of_one_comparison_is_scipys(order):
    values = dict(zip(PRINTED, (0.2 * x for x in order), strict=True))
    found = agreement_of("kvec", "Table 7", coverage_rows(values))
    assert found is not None
    assert (found.pairs, found.groups, found.compared) == (6, 1, "methods")
    assert found.tau == pytest.approx(kendalltau(list(PRINTED.values()), order).statistic)


def test_ties_count_as_tau_b_counts_them():
    rows = coverage_rows({"pyramidkv": 0.2, "snapkv": 0.4, "ada_snapkv": 0.4, "kvec": 0.6})
    rows["coverage"] = rows["coverage"].round(1)
    rows = rows.assign(coverage=rows.groupby("cell_id")["coverage"].transform("median"))
    found = agreement_of("kvec", "Table 7", rows)
    assert found is not None
    assert found.tau == pytest.approx(kendalltau(list(PRINTED.values()), [1, 2, 2, 3]).statistic)


def test_a_suspect_sign_is_in_no_order():
    """19.2 is printed without its minus (AUDIT F67): at that rate three methods are left, which are three pairs."""
    found = agreement_of("kvec", "Table 7", coverage_rows(dict.fromkeys(PRINTED, 0.5), budget="12%"))
    assert found is not None
    assert found.pairs == 3


def test_the_interval_narrows_with_samples_and_holds_the_estimate():
    values = {"pyramidkv": 0.50, "snapkv": 0.51, "ada_snapkv": 0.52, "kvec": 0.53}
    few, many = (agreement_of("kvec", "Table 7", coverage_rows(values, samples=n)) for n in (8, 2000))
    assert few is not None
    assert many is not None
    assert few.low <= few.tau <= few.high
    assert (many.tau, many.low, many.high) == pytest.approx((1, 1, 1))  # a step of .01 is 16 standard errors
    assert few.high - few.low > 0.3  # here it is 1.4


def test_the_interval_covers_the_agreement_of_the_population():
    """200 tables of 12 samples whose methods differ by one standard error: the population's tau is 1.

    A nominal 95 % interval should hold it; a bootstrap of an order is biased to less order, so its upper end is what
    matters. At 200 tables a coverage of .95 is measured with a standard error of .015: below .91 it is too narrow.
    """
    step = 0.02 / math.sqrt(12)
    values = {name: 0.5 + step * place for place, name in enumerate(PRINTED)}
    rows = coverage_rows(values, samples=12)
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        own = rows.assign(
            coverage=rows["policy"].map(lambda name: _level(name, values)) + rng.normal(0, 0.02, len(rows))
        )
        found = agreement_of("kvec", "Table 7", own)
        assert found is not None
        held += found.high >= 1 - 1e-9
    assert held / 200 >= 0.91


def _level(policy: str, values: dict[str, float]) -> float:
    return values[next(name for name in ("pyramidkv", "ada_snapkv", "snapkv", "kvec") if policy.startswith(name))]


def test_what_has_no_samples_has_no_interval_and_says_why():
    found = Agreement(0.5, math.nan, math.nan, 6, 1, "methods", "not all of these values are means over samples")
    assert found.sentence == (
        "Kendall's tau-b 0.50 (no interval: not all of these values are means over samples) over 6 pairs of methods."
    )


def test_where_all_is_tied_there_is_a_sentence_and_no_figure():
    rows = rows_of("kvec", "Table 4", scores=lambda *_: np.ones(8))
    found = agreement_of("kvec", "Table 4", rows)
    assert found is not None
    assert math.isnan(found.tau)
    assert "in no column are two of them open to a comparison" in found.sentence


def test_a_table_that_compares_nothing_has_no_agreement():
    assert agreement_of("keydiff", "Table 6", rows_of("keydiff", "Table 8")) is None
    assert agreement_of("kvec", "Table 7", pd.DataFrame()) is None
