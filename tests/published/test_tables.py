"""The published numbers as data: complete, typed, and every number that cannot be taken as it stands is marked."""

from __future__ import annotations

import re

import numpy as np
import pytest

from harness.config.experiments import option_names as options
from harness.errors import UserError
from harness.papers.published import (
    FLAGS,
    FOLDER,
    PAPERS,
    name_map,
    paper_items,
    presets,
    published_frame,
    row_metrics,
    task_labels,
)
from tasks import TASKS, build

KEY = ["paper", "table", "model", "method", "budget", "budget_unit", "block_size", "task", "metric", "note"]
# Rows that the five papers print: counted in the texts, see results/published/PROVENANCE.md.
CELLS = {"keydiff": 952, "caote": 2980, "buzz": 191, "hashevict": 799, "kvec": 746}
UNITS = {"points", "percent", "fraction", "ppl", "correlation", "samples", "tokens/s", "GB", "s", "score_1_5"}
AVERAGES = {
    "longbench_avg": task_labels("any", "longbench_avg"),
    "longbench_qa6_avg": task_labels("any", "longbench_qa6_avg"),
    "longbench_14_avg": task_labels("any", "longbench_14_avg"),
    "longbench_full_avg": task_labels("any", "longbench_full_avg"),
}
everything = published_frame()


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_number_is_there_once(paper):
    own = published_frame(paper)
    assert len(own) == CELLS[paper]
    assert set(own["paper"]) == {paper}
    assert not own.duplicated(KEY).any()


def test_tables_come_in_the_order_of_print():
    own = published_frame("kvec")
    assert list(own["table"].unique()) == [f"Table {number}" for number in range(1, 11)]
    assert (own["table"].ne(own["table"].shift()).sum()) == 10  # the rows of a table are together


def test_types_and_vocabularies():
    assert everything["value"].dtype == float
    assert set(everything["unit"]) == UNITS
    assert set(everything["budget_unit"]) == {"tokens", "percent", "none"}
    assert set(everything["block_size"]) == {"", "32", "128", "inf"}
    assert set(everything["higher_is_better"]) == {"true", "false", ""}
    numbered = everything[everything["budget_unit"] != "none"]
    assert numbered["budget"].str.fullmatch(r"\d+").all()
    assert (everything.loc[everything["budget_unit"] == "none", "budget"] == "").all()


def test_values_are_the_printed_digits():
    known = everything[everything["printed"] != ""]
    assert np.array_equal(known["value"], known["printed"].astype(float))
    lost = everything[everything["printed"] == ""]
    assert lost["value"].isna().all()
    assert set(lost["flag"]) == {"lost"}


def test_scores_lie_within_their_scale():
    for unit, top in (("points", 100), ("score_1_5", 5), ("percent", 100)):
        values = everything.loc[everything["unit"] == unit, "value"].dropna()
        assert values.between(-30 if unit == "percent" else 0, top).all(), unit


def test_flags_are_known_and_reasoned():
    flagged = everything[everything["flag"] != ""]
    assert set(flagged["flag"]) <= set(FLAGS)
    assert flagged["flag_reason"].str.contains(r"\(.*F\d\d.*\)\.").all()
    assert (everything.loc[everything["flag"] == "", "flag_reason"] == "").all()


def test_every_finding_that_a_flag_names_is_in_the_audit():
    audit = (FOLDER / "AUDIT.md").read_text()
    for finding in set(everything["flag_reason"].str.findall(r"F\d\d").explode().dropna()):
        assert f"**{finding} " in audit, finding


def test_wrong_averages_are_flagged_and_only_those():
    """A printed average is the mean of the cells beside it, to 1.2 of its last half digit; else it is flagged."""
    beside = ["paper", "table", "model", "method", "budget", "block_size", "metric"]
    plain = everything.assign(variant=everything["note"].str.extract(r"(first of two rows)", expand=False).fillna(""))
    wrong, checked = set(), 0
    for key, row in plain.groupby([*beside, "variant"]):
        for index, average in row[row["task"].isin(AVERAGES)].iterrows():
            cells = row[row["our_task"].isin(AVERAGES[average["task"]]) & ~row["task"].isin(AVERAGES)]
            if cells.empty:  # only the average is printed
                continue
            assert len(cells) == len(AVERAGES[average["task"]]), key
            checked += 1
            if abs(cells["value"].mean() - average["value"]) > 0.006:
                wrong.add(index)
    assert checked == 249
    assert wrong == set(everything.index[everything["flag"] == "wrong_average"])


def test_geometric_means_of_buzz_follow_from_its_table_b():
    own = published_frame("buzz")
    parts = own[own["table"] == "Table B"].groupby(["method", "budget"])["value"]
    computed = parts.apply(
        lambda three: float(np.exp(np.log(three).mean())) if three.notna().all() else np.nan
    ).dropna()
    printed = own[own["table"] == "Table 2"].set_index(["method", "budget"])["value"]
    assert len(computed) == 22
    assert (printed[computed.index] - computed).abs().max() < 0.06


def test_rows_that_repeat_another_row_are_flagged():
    """Equal rows are no coincidence: one of two is marked, or the note says that it is a reprint."""
    scored = everything[everything["metric"].eq("official_score") & ~everything["task"].isin(AVERAGES)]
    beside = ["paper", "table", "model", "method", "budget", "block_size"]
    rows = scored.groupby(beside).agg(
        values=("printed", tuple),
        count=("printed", "size"),
        clean=("flag", lambda flags: "duplicated" not in set(flags)),
        first=("note", lambda notes: not notes.str.contains("printed twice|printed again").any()),
    )
    once = rows[rows["clean"] & rows["first"] & (rows["count"] >= 14)].reset_index()
    repeated = once[once.duplicated(["paper", "values"], keep=False)]
    assert repeated.empty, repeated[beside].to_string()


def test_suspect_cells_of_the_specification_are_flagged():
    def flags(**where):
        own = everything
        for column, value in where.items():
            own = own[own[column] == value]
        assert not own.empty
        return set(own["flag"])

    eight = "llama-3.1-8b-instruct"
    assert flags(paper="caote", table="Table 2", model=eight, budget="4096", method="fastcaote_h2o") == {"duplicated"}
    assert "duplicated" in flags(paper="caote", table="Table 10", budget="6144", method="caote_h2o", task="trec")
    assert flags(paper="kvec", table="Table 10") == {"mislabelled"}
    assert flags(paper="kvec", table="Table 2", method="snapkv") == {"other_protocol"}
    assert flags(paper="kvec", table="Table 7", method="snapkv", printed="19.2") == {"misprint"}
    assert flags(paper="hashevict", table="Table 6", budget="90", method="l2norm") == {"implausible"}
    assert flags(paper="keydiff", table="Table 6", task="multi_news", budget="8192") == {"implausible"}


def test_presets_exist_and_what_has_none_says_so():
    known = set(options("policy"))
    for paper in PAPERS:
        methods = name_map()["methods"][paper]
        assert set(published_frame(paper)["method"]) <= set(methods)
        for method, own in methods.items():
            assert own is None or own[0] in known, method
            assert own is not None or method in name_map()["without"]
        for variant in name_map()["variants"].get(paper, {}).values():
            assert variant["of"] in known
            assert variant["settings"] or variant["policy"] == variant["of"]


def test_rows_of_sensitivity_tables_have_a_name_of_their_own():
    assert presets("kvec", "kvec", "panel=c; lambda=0.5; caption says B=256") == ("kvec/lambda0.5",)
    assert presets("kvec", "kvec", "panel=c; lambda=1.0; caption says B=256") == ("kvec", "kvec/testbed")
    assert presets("kvec", "kvec") == ("kvec", "kvec/testbed")
    variants = everything[
        everything["table"].isin(["Table 10", "Table A"]) & everything["paper"].isin(["kvec", "buzz"])
    ]
    assert variants.groupby(["paper", "note"])["policy"].nunique().max() == 1


def test_tasks_and_metrics_have_a_counterpart_or_say_why_not():
    ours = set(TASKS)
    for paper in PAPERS:
        for task in sorted(set(published_frame(paper)["task"])):
            found = task_labels(paper, task)
            assert found or task in name_map()["without"], (paper, task)
            assert all(label.partition("/")[0] in ours for label in found)
    assert build("longbench", subset="qasper").label in task_labels("keydiff", "qasper")
    assert len(task_labels("keydiff", "longbench_avg")) == 16
    assert row_metrics("rouge2") == ("rouge2", "rouge_2")
    assert row_metrics("gpt4_judge_avg") == ("judge",)  # in rows only where task.judge was set
    assert row_metrics("seconds") == ()


def test_every_table_and_figure_is_listed():
    """items.csv is FIGURES.md line by line, several figures of one line apart."""
    listed = paper_items()
    assert not listed.duplicated(["paper", "item"]).any()
    titles = {"KeyDiff": "keydiff", "CAOTE": "caote", "BUZZ": "buzz", "HashEvict": "hashevict", "K-VEC": "kvec"}
    paper, seen = "", set()
    for line in (FOLDER / "FIGURES.md").read_text().splitlines():
        if line.startswith("## "):
            paper = titles[line.removeprefix("## ")]
        elif paper and re.match(r"\| (Fig|Table)", line):
            words, shows = (cell.strip() for cell in line.split("|")[1:3])
            kind = "Figure" if words.startswith("Fig") else "Table"
            for number in re.findall(r"\d+(?: [ab]$)?|\b[A-C]$", words):
                seen.add((paper, f"{kind} {number.replace(' ', '')}", shows))
    assert seen == set(listed[["paper", "item", "shows"]].itertuples(index=False, name=None))
    assert len(paper_items("keydiff")) == 25


def test_every_table_with_numbers_is_listed():
    for paper in PAPERS:
        assert set(published_frame(paper)["table"]) <= set(paper_items(paper)["item"])


@pytest.mark.parametrize("ask", [published_frame, paper_items])
def test_an_unknown_paper_is_answered_with_the_nearest(ask):
    with pytest.raises(UserError, match=r"no paper called 'keydif'. Did you mean keydiff\?"):
        ask("keydif")
