"""Each number of ours stands once, beside what the paper keeps of its dense; places that can show nothing say so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from paper_rows import SAMPLES, cell_rows, rows_of

from harness.papers.cell_index import CellIndex
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.kept_shares import printed_kept
from harness.papers.merged_tables import MergedTable, merged
from harness.papers.paper_tables import PaperTables
from harness.papers.published import PAPERS, published_frame
from harness.papers.table_layouts import printed_numbers
from harness.papers.table_sheets import TableSheets, TextSheet
from harness.store.store import Store

METHODS = {"h2o/keydiff": 1, "tova/keydiff": 2, "sink": 3, "snapkv/keydiff": 4, "keydiff": 5}


def table_of(paper: str, item: str, rows: pd.DataFrame, scale: str = "mini"):
    found = PaperTables(paper, CellIndex(rows), FigureDataOfItems(rows, Store(Path("nowhere")), scale)).table(item)
    assert found is not None
    return found


def line_of(sheet: TextSheet, kind: str, *heads: str):
    """The line of this kind of the row with these headings, and whose model or task it names."""
    return next(x for _, lines in sheet.panels for x in lines if x.kind == kind and x.heads == heads)


@pytest.fixture(scope="module")
def by_method() -> MergedTable:
    """Table 1 with a dense score of .8 and one known score for each method, whatever the task."""

    def known(policy: str, task: str, budget: str) -> np.ndarray:
        return np.full(SAMPLES, 0.8 if policy == "dense" else 0.1 * METHODS[policy])

    return merged(table_of("keydiff", "Table 1", rows_of("keydiff", "Table 1", scores=known)))


def test_714_places_that_168_numbers_feed_show_168_numbers(by_method):
    assert len(by_method.table.numbers) == 714
    assert by_method.table.our_numbers == 168
    shown = [place for row in by_method.rows for place in row.places]
    assert len(shown) == 168
    assert not any(place.again for place in shown)
    printed = [id(number) for place in shown for numbers in place.printed for number in numbers]
    assert sorted(printed) == sorted(map(id, by_method.table.numbers))


def test_a_column_names_the_printed_columns_that_it_stands_for_and_the_task_of_ours(by_method):
    own = TableSheets(by_method.table)
    titles = [(column.title, column.small) for column in own.kept[0].columns]
    assert titles[0] == ("NarrativeQA, Qasper, MF-en", "single doc qa")
    assert titles[-1] == ("Avg.", "mean of 7 tasks")
    assert len(titles) == 8
    assert own.kept[0].columns[-1].is_average
    assert own.counted.startswith("168 numbers of ours, which stand in for 714 places; 8/56 samples")
    assert [title for title, _ in own.printed[0].groups][:2] == ["Single-Document QA", "Multi-Document QA"]
    assert len(own.printed[0].columns) == 17


def test_what_is_kept_is_a_share_of_the_same_models_dense_and_never_a_difference(by_method):
    own = TableSheets(by_method.table)
    paper, ours = (line_of(own.kept[0], kind, "KeyDiff", "2K") for kind in ("paper", "ours"))
    assert [cell.text for cell in ours.cells] == ["62 %"] * 8  # .5 of .8
    assert (paper.what, paper.cells[-1].text) == ("paper, Llama-3.1-8B", "90 %")  # 44.33 of 49.20
    assert {line.kind for _, lines in own.scores[0].panels for line in lines} == {"ours"}
    dense = line_of(own.kept[0], "ours", "Full cache", "")
    assert (dense.cells[0].text, dense.cells[0].kind) == ("80.00", "score")


def test_ranks_are_those_among_methods_at_one_budget_on_either_side(by_method):
    own = TableSheets(by_method.table).kept[0]
    ranks = {name: line_of(own, "ours", name, "2K").cells[0].small for name in ("KeyDiff", "SnapKV", "H2O")}
    assert ranks == {"KeyDiff": "(1)", "SnapKV": "(2)", "H2O": "(5)"}
    assert line_of(own, "paper", "KeyDiff", "2K").cells[-1].small == "(1)"
    assert line_of(own, "ours", "Full cache", "").cells[0].small == ""


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_number_is_in_exactly_one_merged_place(paper):
    for item in published_frame(paper)["table"].unique():
        table = table_of(paper, item, pd.DataFrame())
        own = merged(table)
        found = [id(n) for row in own.rows for place in row.places for each in place.printed for n in each]
        assert set(found) == {id(number) for number in table.numbers}
        assert len(table.numbers) == (published_frame(paper)["table"] == item).sum()


def test_a_setting_that_stands_in_several_panels_is_one_number_of_ours():
    table = table_of("kvec", "Table 10", rows_of("kvec", "Table 10"))
    again = [row for row in merged(table).rows if row.places[0].again]
    assert {row.rows[0].panel for row in again} == {("b",), ("c",), ("d",), ("e",), ("f",)}
    text = TableSheets(table)
    assert text.scores[0].panels[1][1][2].cells[0].text == "″"
    assert "″: the same cell of ours as above." in text.legend


def test_the_row_that_the_print_repeats_under_another_name_has_the_number_of_its_place():
    """K-VEC Table 2 prints HeadKV-R2 twice at 1024; the first of the two stands where HeadKV-R does (AUDIT F09)."""
    rows = rows_of("kvec", "Table 2")
    table = table_of("kvec", "Table 2", rows)
    own = rows[(rows["budget"] == "35%") & (rows["task"] == "longbench_mini/single_doc_qa")]
    means = own.groupby("policy")["value"].mean()
    found = [
        number.ours.value / 100
        for number in table.numbers
        if number.printed.at["method"] == "headkv_r2" and number.printed.at["budget"] == "1024"
        and number.printed.at["task"] == "qasper"
    ]  # fmt: skip
    assert found == pytest.approx([means["headkv_r"], means["headkv_r2"]])
    needle = table_of("kvec", "Table 4", rows_of("kvec", "Table 4"))
    assert all(number.ours for number in needle.numbers)
    assert "headkv_r for headkv" in needle.proxies


def test_a_perplexity_is_compared_in_nats_above_dense():
    def known(policy: str, task: str, budget: str) -> np.ndarray:
        return np.full(SAMPLES, 2.0 if policy == "dense" else 2.25)

    table = table_of("buzz", "Table 3", rows_of("buzz", "Table 3", "nll", known))
    kept = {number.printed.at["method"]: number for number in table.numbers if number.printed.at["budget"] != "100"}
    assert kept["buzz"].our_kept == pytest.approx(0.25)
    assert kept["buzz"].kept == pytest.approx(math.log(9.394 / 7.382))
    deltas = {n.at["method"]: n for n in printed_numbers("caote", "Table 4") if n.at["budget"] in ("2048", "")}
    assert printed_kept("caote", "Table 4", deltas["h2o"]) == pytest.approx(math.log((15.4911 + 3.814) / 15.4911))


def test_without_a_printed_dense_score_the_papers_numbers_stand_as_printed():
    table = table_of("caote", "Table 5", rows_of("caote", "Table 5"))
    own = TableSheets(table)
    paper = next(line for line in own.kept[0].panels[0][1] if line.kind == "paper")
    assert (paper.cells[0].text, paper.cells[0].kind) == ("0.174", "score")
    assert any("prints no dense score" in sentence for sentence in own.legend)


@pytest.mark.parametrize(
    ("dense", "evicting", "said"),
    [(0.0, 0.0, "dense .00, at the floor"), (1.0, 1.0, "all at 1.00"), (0.9, 0.0, "all at .00")],
)
def test_a_place_that_can_show_nothing_says_so_and_has_no_rank(dense, evicting, said):
    def known(policy: str, task: str, budget: str) -> np.ndarray:
        spread = np.linspace(0.3, 0.5, SAMPLES) + 0.02 * METHODS.get(policy, 10)
        at_an_end = np.full(SAMPLES, dense if policy == "dense" else evicting)
        return at_an_end if task.endswith("/multi_doc_qa") else spread

    table = table_of("keydiff", "Table 1", rows_of("keydiff", "Table 1", scores=known))
    own = TableSheets(table)
    titles = [column.title for column in own.kept[0].columns]
    cells = line_of(own.kept[0], "ours", "KeyDiff", "2K").cells
    gated = cells[titles.index("HotpotQA, 2WikiMQA, MuSiQue")]
    assert (gated.text, gated.kind, gated.small) == (said, "gated", "")
    assert cells[0].small == "(1)"
    assert own.agreement is not None
    assert own.agreement.groups == 2 * 4 * 6  # models, budgets, columns that are open; the average is of these


def test_a_budget_that_held_the_whole_prompt_says_that_nothing_was_evicted():
    rows = rows_of("keydiff", "Table 1")
    rows.loc[rows["budget"] == "86%", "tokens_evicted"] = 0.0
    own = TableSheets(table_of("keydiff", "Table 1", rows))
    assert {cell.text for cell in line_of(own.kept[0], "ours", "KeyDiff", "8K").cells} == {"nothing was evicted"}
    assert line_of(own.kept[0], "ours", "KeyDiff", "6K").cells[0].kind == ""


def test_columns_without_numbers_of_ours_are_named_and_not_shown():
    own = TableSheets(table_of("keydiff", "Table 10", rows_of("keydiff", "Table 10")))
    assert own.left_out.startswith("Nothing of ours stands in for: ")
    shown = {part for column in own.kept[0].columns for part in column.title.split(", ")}
    left = set(own.left_out.removesuffix(".").partition(": ")[2].split(", "))
    assert not shown & left


def test_at_full_scale_the_difference_to_the_same_model_is_shown():
    key = ("keydiff", "longbench/qasper", "2048", "", "blocked", 128)
    rows = cell_rows(key, np.full(4, 0.5), "qa_f1", model="llama3.2-3b")
    own = TableSheets(table_of("keydiff", "Table 1", rows, "full"))
    lines = {line.kind: line.cells[0].text for line in own.scores[0].panels[0][1]}
    printed = float(lines["paper"])
    assert lines["ours"] == "50.00"
    assert lines["difference"] == f"{50 - printed:+.2f}".replace("-", "−")


# Layouts as printed.


@pytest.mark.parametrize(
    ("paper", "item", "heads", "columns"),
    [
        ("caote", "Table 4", ("2K",), ["H2O alone", "H2O + CAOTE", "H2O + FastCAOTE", "TOVA alone"]),
        ("caote", "Table 5", ("2K",), ["H2O alone", "H2O + CAOTE", "H2O + FastCAOTE", "TOVA alone"]),
        ("caote", "Table 11", ("2K",), ["H2O alone", "H2O + CAOTE"]),
        ("caote", "Table 12", ("6K",), ["H2O alone", "H2O + CAOTE"]),
        ("caote", "Table 8", ("Spearman correlation",), [" 1", " 2", " 3"]),
        ("caote", "Table 13", ("HotpotQA",), ["H2O 32", "H2O 128", "H2O ∞", "H2O + CAOTE 32"]),
        ("buzz", "Table 3", ("50",), [" BUZZ", " BUZZ, log n", " H2O"]),
        ("hashevict", "Table 10", ("4",), [" F1", " ROUGE-L", " Judge, mean"]),
        ("kvec", "Table 8", ("SnapKV",), [" Cache memory (GB)", " Prefill, tokens/s"]),
        ("kvec", "Table 9", ("500",), ["100 SnapKV", "100 K-VEC", "200 SnapKV"]),
    ],
)
def test_tables_stand_as_they_are_printed(paper, item, heads, columns):
    sheet = TableSheets(table_of(paper, item, pd.DataFrame())).printed[0]
    assert sheet.panels[0][1][0].heads == heads
    assert [f"{column.group} {column.title}" for column in sheet.columns][: len(columns)] == columns


def test_a_wide_print_goes_on_below():
    """CAOTE Table 8: layers 1 to 14 above layers 15 to 28."""
    first, second = TableSheets(table_of("caote", "Table 8", pd.DataFrame())).printed
    assert [column.title for column in first.columns] == [str(n) for n in range(1, 15)]
    assert [column.title for column in second.columns] == [str(n) for n in range(15, 29)]
    assert second.panels[0][1][0].cells[-1].text == "0.96"
