"""Printed numbers that are not scores are compared with stored diagnostics, and only with those."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from paper_rows import cell_rows

from harness.papers.cell_index import CellIndex
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.paper_tables import PaperTables
from harness.store.store import Store


def diagnosed(
    folder, paper: str, item: str, diagnostic: str, frames: dict[str, pd.DataFrame], policy: str = ""
) -> None:
    """Frames by sample, as `harness.runner.diagnostic_runs` writes them for a cell of the item at scale=mini."""
    key = next(key for key in figure_cells(paper, item, "mini").keys if policy in ("", key[0]))
    row = cell_rows(key, [0.0], "string_match").iloc[0]
    labels = {name: row[name] for name in ("model", "policy", "budget", "prompt", "task", "dtype", "created")}
    cell = {"cell_id": row["cell_id"], **labels, "block_size": int(row["block_size"]), "seed": 0}
    store = Store(folder / "diagnostics")
    store.describe(row["cell_id"], {**cell, "config": json.loads(row["config"])})
    target = store.root / row["cell_id"] / diagnostic
    target.mkdir(parents=True)
    for sample, frame in frames.items():
        frame.assign(sample_id=sample).to_parquet(target / f"{sample}.parquet", index=False)


def table_of(paper: str, item: str, folder):
    rows = pd.DataFrame()
    return PaperTables(paper, CellIndex(rows), FigureDataOfItems(rows, Store(folder / "runs"), "mini")).table(item)


def test_correlations_of_hash_sizes_are_means_over_prompts_layers_and_heads(tmp_path):
    one = pd.DataFrame({"layer": [0, 0, 0], "query_head": 0, "bits": [16, 16, 8], "over": ["pairs", "keys", "pairs"],
                        "count": 9, "pearson": [0.2, 0.9, 0.1]})  # fmt: skip
    diagnosed(tmp_path, "hashevict", "Figure 9", "lsh", {"s0": one, "s1": one.assign(pearson=one["pearson"] + 0.2)})
    table = table_of("hashevict", "Table 11", tmp_path)
    found = {(p.printed.at["hash_bits"], p.printed.at["metric"]): p.ours for p in table.numbers}
    assert found["16", "pearson"].value == pytest.approx(0.3)
    assert found["16", "pearson"].n == 2
    assert found["8", "pearson"].value == pytest.approx(0.2)
    assert found["16", "pearson_std"].value == pytest.approx(0.1414, abs=1e-4)
    assert found["24", "pearson"] is None


def test_attention_loss_is_of_generated_tokens_and_leaves_out_those_from_which_nothing_is_hidden(tmp_path):
    phases = ["prompt", "decode", "decode", "decode"]  # a prompt fed token by token loses attention too: left out
    frame = pd.DataFrame({"step": [0, 1, 2, 3], "phase": phases, "layer": 0, "query_head": 0,
                          "queries": [50, 10, 1, 3], "evicted": [2.0, 0.0, 2.0, 2.0],
                          "loss": [0.9, 0.0, 0.4, 0.2]})  # fmt: skip
    diagnosed(tmp_path, "hashevict", "Table 3", "attention_loss", {"s0": frame}, "hashevict/paper")
    table = table_of("hashevict", "Table 3", tmp_path)
    found = {number.printed.at["method"]: number.ours for number in table.numbers}
    assert found["hashevict"].value == pytest.approx((0.4 + 3 * 0.2) / 4)
    assert found["l2norm"] is None


def test_layers_of_table_8_count_from_one(tmp_path):
    pairs = ["caote-fastcaote", "caote-fastcaote", "base-caote"]
    frame = pd.DataFrame({"step": 0, "phase": "decode", "layer": [0, 1, 1], "head": 0, "slots": 9, "pair": pairs})
    frame = frame.assign(spearman=[0.5, 0.7, 0.1])
    diagnosed(tmp_path, "caote", "Table 8", "score_ranks", {"s0": frame})
    found = {number.printed.at["layer"]: number.ours for number in table_of("caote", "Table 8", tmp_path).numbers}
    assert (found["1"].value, found["2"].value) == pytest.approx((0.5, 0.7))
    assert found["28"] is None


def test_without_diagnostics_a_number_names_what_measures_it(tmp_path):
    table = table_of("caote", "Table 8", tmp_path)
    assert all("No stored diagnostic 'score_ranks': `python -m harness figures" in p.reason for p in table.numbers)
