"""Ours beside the paper's: numbers known beforehand, printed ranks, suspects, reasons, file formats."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from paper_rows import SAMPLES, cell_rows, rows_of

from harness.analysis.statistics import mean_interval
from harness.papers.cell_index import CellIndex
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.paper_tables import ComparedNumber, PaperTable, PaperTables
from harness.papers.sheet_cells import format_number
from harness.papers.table_formats import csv_of_numbers, csv_of_table, latex, markdown
from harness.papers.table_sheets import TableSheets
from harness.store.store import Store


def table_of(paper: str, item: str, rows: pd.DataFrame, scale: str = "mini") -> PaperTable:
    found = PaperTables(paper, CellIndex(rows), FigureDataOfItems(rows, Store(Path("nowhere")), scale)).table(item)
    assert found is not None
    return found


def place_at(table: PaperTable, **at: str) -> ComparedNumber:
    found = [each for each in table.numbers if all(each.printed.at.get(name) == value for name, value in at.items())]
    assert len(found) == 1, at
    return found[0]


@pytest.fixture(scope="module")
def table_1() -> PaperTable:
    return table_of("keydiff", "Table 1", rows_of("keydiff", "Table 1"))


@pytest.fixture(scope="module")
def rows_1() -> pd.DataFrame:
    return rows_of("keydiff", "Table 1")


def test_our_value_is_the_mean_in_points_with_its_interval(table_1, rows_1):
    own = rows_1[(rows_1["policy"] == "keydiff") & (rows_1["budget"] == "22%")]
    own = own[own["task"] == "longbench_mini/single_doc_qa"]
    known = mean_interval(own["value"], own["sample_id"])
    number = place_at(table_1, model="llama-3.1-8b-instruct", method="keydiff", budget="2048", task="qasper")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(100 * known.mean)
    assert (number.ours.low, number.ours.high) == pytest.approx((100 * known.low, 100 * known.high))
    assert number.ours.n == SAMPLES


def test_an_average_is_the_plain_mean_of_the_tasks_that_stand_for_its_own(table_1, rows_1):
    own = rows_1[(rows_1["policy"] == "keydiff") & (rows_1["budget"] == "22%")]
    number = place_at(table_1, model="llama-3.1-8b-instruct", method="keydiff", budget="2048", task="longbench_avg")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(100 * own.groupby("task")["value"].mean().mean())
    assert number.ours.low < number.ours.value < number.ours.high
    assert number.ours.n == 7 * SAMPLES


def test_best_and_second_best_are_marked_as_printed(table_1):
    ranks = {
        method: place_at(
            table_1, model="llama-3.1-8b-instruct", method=method, budget="2048", task="longbench_avg"
        ).rank
        for method in ("h2o", "tova", "sink", "snapkv", "keydiff")
    }
    assert ranks == {"h2o": "", "tova": "", "sink": "", "snapkv": "second", "keydiff": "best"}
    assert place_at(table_1, model="llama-3.1-8b-instruct", method="dense", task="longbench_avg").rank == ""


def test_lower_is_better_where_the_paper_says_so():
    def known(policy: str, task: str, budget: str) -> np.ndarray:
        return np.full(SAMPLES, {"dense": 2.0, "caote_h2o": 2.1}.get(policy, 3.0))

    table = table_of("caote", "Table 11", rows_of("caote", "Table 11", "nll", known))
    number = place_at(table, model="qwen2.5-7b-instruct", method="caote_h2o")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(math.exp(2.1) - math.exp(2.0))
    assert number.our_kept == pytest.approx(0.1)
    (panel,) = TableSheets(table).kept[0].panels
    ours = next(line for line in panel[1] if line.kind == "ours")
    titles = [f"{column.group} {column.title}" for column in TableSheets(table).kept[0].columns]
    assert ours.cells[titles.index("H2O + CAOTE")].small == "(1)"


def test_a_suspect_number_is_flagged_with_the_audits_reason(table_1):
    number = place_at(table_1, model="llama-3.1-8b-instruct", method="dense", task="qasper")
    assert number.note > 0
    kind, reason = table_1.suspects[number.note - 1]
    assert kind == "another table or paper prints another number for the same thing"
    assert "AUDIT" in reason or "F0" in reason or "F" in reason
    assert f"{number.note}. {kind}: {reason}" in markdown(table_1, "Table 1", ())


def test_proxies_are_named(table_1):
    (sentence,) = table_1.proxy_sentence
    assert "longbench_mini/single_doc_qa for narrativeqa, qasper, multifieldqa_en;" in sentence
    assert "budget 22% for 2048" in sentence
    assert "blocks of 32 for 128" in sentence


@pytest.mark.parametrize(
    ("paper", "item", "metric", "empty"),
    [
        ("keydiff", "Table 7", "string_match", None),  # code and few-shot, one QA task: the others are not run at mini
        ("keydiff", "Table 10", "string_match", None),
        ("keydiff", "Table 11", "string_match", None),
        ("caote", "Table 2", "string_match", 0),
        ("caote", "Table 4", "nll", 0),
        ("caote", "Table 5", "string_match", 0),
        ("caote", "Table 13", "string_match", None),
        ("buzz", "Table 2", "rouge_l", 0),
        ("buzz", "Table 3", "nll", 0),
        ("hashevict", "Table 5", "string_match", None),
        ("kvec", "Table 1", "string_match", 0),
        ("kvec", "Table 7", "string_match", 0),
        ("kvec", "Table 10", "string_match", 3),  # delta 1, 3 and 4 heads are one cell or none with two KV heads
    ],
)
def test_rows_of_the_mini_grid_measure_the_printed_numbers(paper, item, metric, empty):
    table = table_of(paper, item, rows_of(paper, item, metric))
    unanswered = [number for number in table.numbers if number.ours is None]
    assert len(unanswered) < len(table.numbers)
    assert all(number.reason for number in unanswered)
    if empty is not None:
        assert len(unanswered) <= empty, {number.reason for number in unanswered}


def test_without_rows_every_number_says_what_measures_it():
    table = table_of("keydiff", "Table 1", pd.DataFrame())
    assert not table.has_ours
    assert all("python -m harness +exp=keydiff/table_1 scale=mini" in number.reason for number in table.numbers)
    own = TableSheets(table)
    assert (own.kept, own.scores, own.agreement) == ((), (), None)
    assert [line.kind for line in own.printed[0].panels[0][1][:2]] == ["paper", "paper"]


def test_at_full_scale_there_are_no_proxies():
    table = table_of("keydiff", "Table 1", rows_of("keydiff", "Table 1"), "full")
    assert not table.has_ours
    key = ("keydiff", "longbench/qasper", "2048", "", "blocked", 128)
    rows = cell_rows(key, np.full(4, 0.5), "qa_f1", model="llama3.2-3b")
    table = table_of("keydiff", "Table 1", rows, "full")
    number = place_at(table, model="llama-3.2-3b-instruct", method="keydiff", budget="2048", task="qasper")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(50)
    assert not table.proxies
    (_, lines), *_ = TableSheets(table).scores[0].panels
    assert [line.kind for line in lines] == ["paper", "ours", "difference"]
    assert sum(each.ours is not None for each in table.numbers) == 1


def test_memory_and_coverage_come_from_the_ledger():
    table = table_of("hashevict", "Table 2", rows_of("hashevict", "Table 2"))
    number = place_at(table, method="l2norm", budget="50%", task="gsm8k", metric="compression_ratio")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(1 - 100 / 200)
    number = place_at(table, method="dense", task="gsm8k", metric="cache_gb")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(200 * 64 / 1e9)
    table = table_of("kvec", "Table 7", rows_of("kvec", "Table 7"))
    assert all(number.ours is not None and number.ours.value == pytest.approx(-50) for number in table.numbers)


def test_kept_shares_and_lengths_need_no_policy_of_their_own():
    rows = rows_of("keydiff", "Table 8")
    number = place_at(table_of("keydiff", "Table 6", rows), task="qasper", budget="2048")
    assert number.ours is not None
    assert number.ours.value == pytest.approx(44 / 200)


def test_lengths_of_other_prompts_than_the_papers_are_not_counted_in_its_bins():
    count = place_at(table_of("keydiff", "Table 5", rows_of("keydiff", "Table 8")), task="qasper", length_bin="le_2K")
    assert count.ours is None
    assert "our prompts of longbench_mini/single_doc_qa have 200 to 200 tokens" in count.reason
    own = cell_rows(("dense", "longbench/qasper", "full", "", "blocked", 128), np.full(4, 0.5), "qa_f1", "llama3.1-8b")
    table = table_of("keydiff", "Table 5", own.assign(prompt_tokens=[500, 2500, 2600, 9000]), "full")
    assert [place_at(table, task="qasper", length_bin=name).ours.value for name in ("le_2K", "2K_4K", "ge_8K")] == [
        1,
        2,
        1,
    ]


def test_the_geometric_mean_of_what_is_there_says_so():
    rows = rows_of("buzz", "Table 2", "rouge_l", lambda *_: np.full(SAMPLES, 0.25)).drop(columns="prediction")
    both = pd.concat([rows, rows.assign(metric="rouge_1", value=0.5), rows.assign(metric="rouge_2", value=0.125)])
    alone, three = (place_at(table_of("buzz", "Table 2", each.reset_index(drop=True)), method="buzz", budget="50%").ours
                    for each in (rows, both))  # fmt: skip
    assert alone.value == pytest.approx(25)
    assert "rougeL alone for the geometric mean of three" in alone.notes
    assert three.value == pytest.approx(25)
    assert not any("alone" in note for note in three.notes)


def test_what_rows_do_not_score_comes_from_their_texts():
    """One of two words is right: ROUGE-1 is a half, and no pair of words is."""
    rows = rows_of("buzz", "Table B", "rouge_l").assign(prediction="ball bat", reference="ball net")
    table = table_of("buzz", "Table B", rows)
    found = {
        metric: place_at(table, method="buzz", budget="50%", metric=metric).ours for metric in ("rouge1", "rouge2")
    }
    assert (found["rouge1"].value, found["rouge2"].value) == pytest.approx((50, 0))


def test_without_an_encoder_bertscore_says_which_one_to_give(monkeypatch):
    monkeypatch.setenv("KVREPLICA_BERTSCORE", "no/such/folder")
    rows = rows_of("hashevict", "Table 7").assign(metric="rouge_l")
    number = place_at(table_of("hashevict", "Table 7", rows), method="hashevict", budget="50%", metric="bertscore_f1")
    assert number.ours is None
    assert "KVREPLICA_BERTSCORE names a folder" in number.reason


def test_every_format_has_the_numbers(table_1):
    number = place_at(table_1, model="llama-3.1-8b-instruct", method="keydiff", budget="2048", task="longbench_avg")
    ours = format_number(number.ours.value, number.printed.printed)
    share = f"{100 * number.kept:.0f} %"
    for text in (markdown(table_1, "T", ()), latex(table_1, "T", ()).replace(r"\%", "%"), csv_of_table(table_1)):
        assert ours in text
        assert share in text
    assert r"\textbf{44.33}" in latex(table_1, "T", ())
    assert "**44.33**" in markdown(table_1, "T", ())
    lines = list(csv.DictReader(io.StringIO(csv_of_numbers(table_1))))
    assert len(lines) == 714
    own = next(x for x in lines if x["published"] == "44.33" and x["task"] == "longbench_avg")
    assert float(own["ours"]) == pytest.approx(number.ours.value)
    assert own["samples"] == str(number.ours.n)
    assert {len(line) for line in csv.reader(io.StringIO(csv_of_table(table_1)))} == {13}
    assert len({line["our_number"] for line in lines}) == 168


def test_latex_has_no_letter_that_tex_takes_for_an_order():
    table = table_of("hashevict", "Table 5", pd.DataFrame())
    body = latex(table, "100% & more_or #less", ("a note",))
    assert r"100\% \& more\_or \#less" in body
    assert body.count(r"\begin{tabular}") == body.count(r"\end{tabular}") == 1
    table = table_of("kvec", "Table 7", rows_of("kvec", "Table 7"))
    assert latex(table, "T", ()).count(r"\begin{tabular}") == 3  # what is kept, our scores, as printed


def test_numbers_have_the_digits_of_print():
    assert format_number(12.3456, "44.33") == "12.35"
    assert format_number(0.000012, "0.5") == "1.2e-05"
    assert format_number(0.00012) == "0.000120"
    assert format_number(math.nan) == "–"


def test_only_cells_of_the_items_own_grid_answer_it():
    """Another block size in the store belongs to another experiment."""
    key = next(key for key in figure_cells("keydiff", "Table 1", "mini").keys if key[0] == "keydiff")
    rows = cell_rows((*key[:-1], 64), np.full(4, 0.5), "string_match")
    assert not table_of("keydiff", "Table 1", rows).has_ours
