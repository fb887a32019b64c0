"""The page: complete, self-contained, well-formed, and without the numbers of struck-out cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.report.labels import policy_labels
from harness.report.ledger_table import ledger_lines
from harness.report.page import render, write_report
from harness.report.rows import checked_rows
from harness.report.run_facts import SHOWN_SAMPLES
from harness.report.summary import summary_table, value_text

Make = Callable[..., pd.DataFrame]
VOID = {"meta", "link", "br", "hr", "img", "input"}
BROKEN = "Slots kept 140 exceed the budget of 128."


class Outline(HTMLParser):
    """Checks nesting while it collects tags, ids, references and visible text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def ledger_lines_of(rows: pd.DataFrame) -> pd.DataFrame:
    accepted = checked_rows(rows)
    return ledger_lines(accepted, policy_labels(accepted))


def parsed(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def words(page: str) -> str:
    return " ".join(" ".join(parsed(page).text).split())


@pytest.fixture(scope="module")
def page(rows: pd.DataFrame) -> str:
    return render(rows, "A title", ["A note."])


def test_names_what_was_run(page: str, rows: pd.DataFrame) -> None:
    text = words(page)
    for name in [
        *rows["policy"].unique(),
        "A title",
        "A note.",
        "2 cores, 8 GiB",
        "torch 2.13.0",
        "2026-05-04",
        "0123abc",
    ]:
        assert name in text
    assert all(cell in text for cell in rows["cell_id"].unique())
    assert "niah: Needle in a haystack: recall the number of one key" in text  # what the task asks
    assert "45 samples from 9 documents" in text
    assert "bars are 95 % intervals" in text


def test_shows_every_number_of_the_summary(page: str, rows: pd.DataFrame) -> None:
    shown = Counter(re.findall(r'class="value"[^>]*>([^<]+)<', page))
    assert shown == Counter(value_text(line) for line in summary_table(rows).to_dict("records"))


def test_every_number_leads_to_its_cell_and_the_cells_first_samples(page: str, rows: pd.DataFrame) -> None:
    shown = re.findall(r'class="value" href="#cell-([^"]+)"[^>]*>([^<]+)<', page)
    lines = summary_table(rows).to_dict("records")
    assert Counter(shown) == Counter((str(line["cell_id"]), value_text(line)) for line in lines)
    for cell in rows["cell_id"].unique():
        entry = page.partition(f'<tr id="cell-{cell}">')[2].partition("</tr>")[0]
        own = rows[rows["cell_id"] == cell]
        first = own.drop_duplicates("sample_id").head(SHOWN_SAMPLES)
        assert entry.count("<li>") == len(first) > 0
        for sample in first["sample_id"]:
            for metric, score in own.loc[own["sample_id"] == sample, ["metric", "value"]].itertuples(index=False):
                shown = f"perplexity {np.exp(score):.3g}" if metric == "nll" else f"exact match {score:.3g}"
                assert re.search(rf"<li>{re.escape(str(sample))}: [^<]*{re.escape(shown)}", entry)


def test_shows_every_figure(page: str) -> None:
    outline = parsed(page)
    names = [value for tag, name, value in outline.attributes if tag == "svg" and name == "aria-label"]
    maps = [name for name in names if "mean" in name and "samples" in name]
    assert len(maps) == 1 + 8 * 3
    assert sum("against budget" in name for name in names) == 2
    assert Counter(outline.text)["n=3"] == 15 * len(maps)
    for axis in (
        "length (tokens)",
        "depth (%)",
        "budget (slots per layer and KV head)",
        "perplexity (lower is better)",
    ):
        assert axis in outline.text


def test_needs_no_network_and_no_other_file(page: str) -> None:
    assert not re.search(r"https?:|//[a-z]", page)
    outline = parsed(page)
    assert outline.tags["script"] == outline.tags["link"] == outline.tags["img"] == 0
    references = [value for _, name, value in outline.attributes if name in ("src", "href")]
    assert references
    assert all(value.startswith("#") for value in references)
    assert not re.search(r"url\((?!#)|@import", page)


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    attributes = parsed(page).attributes
    ids = Counter(value for _, name, value in attributes if name == "id")
    assert max(ids.values()) == 1
    targets = {value[1:] for _, name, value in attributes if name == "href"}
    targets |= set(re.findall(r"url\(#([^)]+)\)", page))
    targets |= {value for _, name, value in attributes if name == "aria-labelledby"}
    assert targets <= set(ids)


def test_figures_follow_the_colour_scheme(page: str) -> None:
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    assert used <= set(re.findall(r"(--[\w-]+)\s*:", page))
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"#0[1-4]0[1-4]0[1-4]", page)  # placeholders of the page's colours


def test_same_rows_give_the_same_page(page: str, rows: pd.DataFrame) -> None:
    assert render(rows, "A title", ["A note."]) == page


def test_changing_one_row_changes_the_page(rows: pd.DataFrame, page: str) -> None:
    changed = rows.copy()
    place = changed.query("policy == 'window' and budget == '64' and value == 0").index[0]
    changed.loc[place, "value"] = 1.0
    assert ">0.378<" in page
    assert ">0.378<" not in render(changed, "A title", ["A note."])


def test_invalid_cell_is_named_and_left_out(make: Make) -> None:
    broken = make(["sink", "keydiff"])
    cell = (broken["policy"] == "sink") & (broken["budget"] == "128") & (broken["task"] == "niah")
    broken.loc[broken[cell].index[:5], "invalid"] = BROKEN
    page = render(broken, "t")
    text = words(page)
    assert "1 cell is struck out" in text
    assert BROKEN in text
    assert "needle-512-0.0-0, needle-512-0.25-0, needle-512-0.5-0 and 2 more" in text
    assert page.count("<s>invalid</s>") == 1
    assert "sink, budget 128: mean" not in page
    assert "sink, budget 64: mean" in page
    table, ledger = summary_table(broken), ledger_lines_of(broken)
    identity = broken.loc[cell, "cell_id"].iloc[0]
    assert identity not in set(table["cell_id"])
    assert len(table) == 13
    assert ledger.set_index("cell_id").loc[identity, "invalid_rows"] == 5
    assert "Struck-out cells are absent" in text


def test_a_score_that_is_no_number_is_an_invalid_row(make: Make) -> None:
    broken = make(["sink", "keydiff"])
    broken.loc[broken.query("policy == 'keydiff' and metric == 'nll'").index[0], "value"] = np.inf
    assert "the score is not a finite number" in words(render(broken, "t"))
    assert len(summary_table(broken)) == 13


def test_everything_invalid_still_gives_a_page(make: Make) -> None:
    text = words(render(make(["sink"]).assign(invalid=BROKEN), "t"))
    assert "8 cells are struck out" in text
    assert "nothing to summarise" in text


def test_dense_struck_out_takes_the_differences_with_it(make: Make) -> None:
    rows = make(["sink", "keydiff"], tasks=["niah"])
    rows.loc[rows["policy"] == "dense", "invalid"] = BROKEN
    assert summary_table(rows)["difference"].isna().all()
    assert "invalid" in words(render(rows, "t"))


@pytest.mark.parametrize("column", ["prediction", "reference", "policy", "model", "invalid", "hardware", "config"])
def test_text_from_rows_cannot_become_markup(make: Make, column: str) -> None:
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)> & $x$'
    rows = make(["keydiff", "sink"], ["64"])
    changed = rows["policy"] == "sink" if column in ("policy", "invalid") else pd.Series(True, index=rows.index)
    rows.loc[changed, column] = attack
    page = render(rows, attack, [attack])
    outline = parsed(page)
    assert outline.tags["script"] == outline.tags["img"] == 0
    assert "<script" not in page
    assert any("<script>alert(1)</script>" in text for text in outline.text)


@pytest.mark.parametrize(
    ("changes", "present", "absent"),
    [
        ({"tasks": ["niah"]}, ["exact match", "depth (%)"], ["perplexity"]),
        ({"tasks": ["perplexity"]}, ["perplexity"], ["exact match", "By needle depth", "Examples"]),
        ({"dense": False}, ["exact match"], ["Dashed line and band", "difference to dense"]),
        ({"budgets": ["64"]}, ["keydiff , budget 64"], []),
        ({"budgets": ["25%", "50%"]}, ["budget (% of tokens, as asked)"], ["per layer and KV head)"]),
        ({"budgets": ["25%", "64"]}, ["budget (mean slots granted per layer and KV head)"], []),
        ({"policies": []}, ["none (dense only)", "exact match"], ["Quality against budget"]),
        ({"policies": ["a_new_idea"]}, ["a_new_idea"], []),
        ({"context": {"block_size": np.nan, "seed": np.nan}}, ["exact match"], ["blocks of"]),
    ],
)
def test_missing_pieces(make: Make, changes: dict[str, object], present: list[str], absent: list[str]) -> None:
    text = words(render(make(**{"policies": ["sink", "keydiff"], "budgets": ["64", "128"], **changes}), "t"))
    for sentence in present:
        assert sentence in text
    for sentence in absent:
        assert sentence not in text


def test_rows_without_axes(make: Make) -> None:
    text = words(render(make(["sink"], tasks=["niah"]).drop(columns=["axis_length", "axis_depth"]), "t"))
    assert "0." in text
    assert "By needle depth" not in text


def test_several_models_and_regimes_keep_apart(make: Make) -> None:
    other = {"model": "another", "prompt": "one_shot", "block_size": 0, "seed": 3}
    page = render(pd.concat([make(["sink"], ["64"], ["niah"]), make(["sink"], ["64"], ["niah"], context=other)]), "t")
    text = words(page)
    assert "another · one_shot prompt · seed 3" in text
    assert "testbed · blocked prompt · blocks of 32 tokens · seed 0" in text
    assert len(re.findall(r'<table class="summary', page)) == 2


def test_uneven_samples_are_said(make: Make) -> None:
    rows = make(["sink", "keydiff"], ["64", "128"], ["niah"])
    short = rows.query("policy == 'sink' and budget == '64'").index[10:]
    text = words(render(rows.drop(short), "t"))
    assert "n = 10" in text
    assert "Cells differ in their number of samples" in text


def test_mixed_provenance_is_said(make: Make) -> None:
    rows = make(["sink"], ["64"])
    rows.loc[rows["policy"] == "sink", "git"] = "fedcba9"
    assert "made in 2 different environments" in words(render(rows, "t"))


def test_writes_the_file_and_its_folder(make: Make, tmp_path: Path) -> None:
    rows = make(["sink"], ["64"])
    path = tmp_path / "new" / "report.html"
    write_report(rows, path, "A title", ["A note."])
    assert path.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(ValueError, match="no rows to report"):
        write_report(rows.iloc[:0], path, "t", [])


def test_ledger_counts_a_sample_once_however_many_metrics(make: Make) -> None:
    rows = make(["sink"], ["64"], ["niah"])
    line = ledger_lines_of(pd.concat([rows, rows.assign(metric="f1")])).query("policy == 'sink'").iloc[0]
    assert line["samples"] == 45
    assert (line["requested_min"], line["requested_max"], line["kept_max"], line["peak"]) == (64, 64, 64, 96)
    assert line["evicted"] == pytest.approx(rows.query("policy == 'sink'")["tokens_evicted"].mean())


def test_tokens_that_are_read_again_have_a_column_where_a_policy_but_the_oracle_reads_any(make: Make) -> None:
    """Rows from before the column count as 0, beside newer ones and alone."""
    rows = make(["sink", "keydiff"], ["64"], ["niah"])
    heading = '<th scope="col" class="number">read again<small>tokens, mean</small></th>'
    assert heading not in render(rows, "t")
    newer = rows.assign(tokens_reread=np.where(rows["policy"] == "sink", 1500.0, np.nan))
    assert render(newer, "t").count(heading) == render(newer, "t").count("Read again:") == 1
    of_the_oracle = newer.assign(policy=rows["policy"].replace("sink", "oracle"))
    assert heading not in render(of_the_oracle, "t")
    assert ledger_lines_of(newer).set_index("policy")["reread"].to_dict() == {"dense": 0, "keydiff": 0, "sink": 1500}
