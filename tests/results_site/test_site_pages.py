"""The pages of a site, without a browser: whole, self-contained, and true to the rows."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report.conftest import build as made_up_rows
from results_site.conftest import INVALID

from harness.cli import site as command
from harness.report.looks import FAMILIES, contrast, look_of
from harness.report.rows import checked_rows
from harness.report.summary import summary_table
from harness.site import build as site_builder
from harness.site import table_pages
from harness.site.contents import SiteContents, papers_of
from harness.site.survivor_viewer import places_of
from harness.store import cell_folders
from harness.store.loading import load_rows

INK, CARD = {"light": "#1c2126", "dark": "#e6e9ec"}, {"light": "#ffffff", "dark": "#181d23"}


class Page(HTMLParser):
    """Links, resources and ids of a page; complains of elements that are closed in another order than opened."""

    VOID = frozenset({"meta", "link", "input", "br", "use", "path", "rect", "line", "circle"})

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(file.read_text())
        assert not self.open, (file, self.open)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("href", "src") if given.get(name)]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_every_link_of_every_page_leads_to_a_file_of_the_folder(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for file in pages:
        page = Page(file)
        assert len(set(page.ids)) == len(page.ids), file
        for link in page.links:
            assert not re.match(r"\w+://|//|/", link), f"{file} needs the network or a root: {link}"
            target = link.partition("?")[0].partition("#")[0]
            if target and not link.startswith("data:"):
                there = (file.parent / target).resolve()
                assert there.is_file(), (file, link)
                assert site.resolve() in there.parents, (file, link)
    assert "url(" not in (site / "site.css").read_text()


def test_every_cell_has_a_line_in_the_ledger_and_a_page(site, results):
    cells = cell_folders.cell_names(results / "runs")
    book = (site / "ledger.html").read_text()
    for cell in cells:
        assert f'href="cells/{cell}.html"' in book
        assert cell in (site / f"cells/{cell}.html").read_text()
    assert len(list((site / "cells").iterdir())) == len(cells)


def test_a_broken_cell_is_struck_out_and_still_has_its_ledger(site, results):
    rows = load_rows(results)
    broken = rows.loc[rows["invalid"] == INVALID, "cell_id"].iloc[0]
    assert f"cells/{broken}.html" not in (site / "leaderboard.html").read_text()
    assert f"cells/{broken}.html" in (site / "ledger.html").read_text()
    for page in (site / "index.html", site / f"cells/{broken}.html"):
        assert INVALID in page.read_text()


def test_the_claims_of_all_five_papers_are_there_with_the_warning_of_the_small_scale(site):
    page = (site / "claims.html").read_text()
    for claim in ("KD-01", "CA-01", "BZ-01", "HE-01", "KV-01"):
        assert claim in page
    assert "no statement about the papers' models" in page.replace("&#39;", "'")


def test_reports_are_copied_so_that_the_folder_stands_alone(site):
    index = (site / "index.html").read_text()
    assert 'href="reports/keydiff/index.html"' in index
    assert 'href="reports/quickstart.html"' in index
    assert "Report of KeyDiff" in (site / "reports/keydiff/index.html").read_text()
    assert "python -m harness report paper=kvec" in index


def test_what_a_model_said_is_text_and_no_markup(site):
    pages = [file for file in site.rglob("*.html") if "answer 0 &amp; " in file.read_text()]
    assert {file.parent.name for file in pages} == {"cells", "survivors"}
    assert all("<b>more" not in file.read_text() for file in pages)


def test_the_viewers_data_is_what_was_stored(site, results):
    (viewer,) = (file for file in (site / "survivors").iterdir() if file.name != "index.html")
    data = json.loads(re.search(r'id="data">(.*)</script>', viewer.read_text())[1])
    assert [run["label"] for run in data["runs"]] == ["sink, 50%", "keydiff, 50%", "random (floor), 50%"]
    frames = {
        cell_folders.read_description(folder)["policy"]: pd.read_parquet(next(folder.glob("survivors/*.parquet")))
        for folder in (results / "diagnostics").iterdir()
    }
    for run, policy in zip(data["runs"], ("sink", "keydiff", "random"), strict=True):
        frame = frames[policy].sort_values(["layer", "head", "position"])
        assert np.array(run["leftAt"]).flatten().tolist() == frame["left_at"].tolist()
        assert run["layers"] * run["heads"] == len(run["leftAt"]) == 12
        assert run["stops"][: run["promptPasses"]][-1] == data["promptTokens"]
        assert run["stops"][-1] == len(data["pieces"])
    assert "Question: What is" in "".join(data["pieces"])


def test_rivals_are_ranked_and_baselines_never():
    rows = made_up_rows(policies=("window", "sink", "keydiff", "random", "oracle"), budgets=("64", "128"))
    placed = table_pages.with_ranks(summary_table(rows))
    assert set(placed.loc[placed["dense"] | placed["reference"], "place"]) == {0}
    runs = placed[placed["place"] > 0]
    assert len(runs) == 3 * 2 * 2
    for (task, _), part in runs.groupby(["task", "budget"]):
        best = part["value"].min() if task == "perplexity" else part["value"].max()
        assert (part.loc[part["place"] == 1, "value"] == best).all()
        assert set(part["rivals"]) == {3}


def test_a_line_of_the_leaderboard_carries_the_numbers_of_the_summary():
    contents = SiteContents.of(made_up_rows(policies=("sink", "keydiff"), budgets=("128",), tasks=("niah",)))
    table = table_pages.leaderboard_page(contents)
    titles = [column.title for column in table.columns]
    assert ("model", "testbed") in table.common
    summary = contents.summary.set_index("label")
    assert len(table.lines) == 3
    for line in table.lines:
        own = dict(zip(titles, line.entries, strict=True))
        assert float(own["score"].order) == summary.loc[own["policy"].text, "value"]
        assert own["score"].text == f"{summary.loc[own['policy'].text, 'value']:.3f}"
    filters = {entry.name: list(entry.options) for entry in table.filters}
    assert filters["budget"] == ["128", "full"]
    assert not {"task", "regime", "model"} & set(filters), "all lines agree in these"


def test_a_budget_is_shown_beside_its_dense_line(site):
    page = (site / "leaderboard.html").read_text()
    keys = [json.loads(html.unescape(found)) for found in re.findall(r'data-keys="([^"]*)"', page)]
    dense = {each["task"][0]: set(each["budget"]) for each in keys if "full" in each["budget"]}
    beside = {"128", "25%", "full"}
    assert dense == {"perplexity": beside, "niah": beside | {"50%"}}  # the watched cells have a budget of their own
    assert all(len(each["budget"]) == 1 for each in keys if "full" not in each["budget"])


def test_lines_of_two_dtypes_are_told_apart():
    rows = pd.concat(
        made_up_rows(("keydiff",), budgets=("128",), context={"dtype": dtype}) for dtype in ("float32", "bfloat16")
    )
    table = table_pages.leaderboard_page(SiteContents.of(rows))
    smalls = {entry.small for line in table.lines for entry in line.entries if entry.text == "testbed"}
    assert smalls == {"float32", "bfloat16"}


@pytest.mark.parametrize(
    ("answer", "answers", "needles"),
    [
        ("4511", [(7, 9)], [(4, 10)]),
        (" 4511 ", [(7, 9)], [(4, 10)]),
        ("45", [], []),  # a part of a number is another number
        ("green", [], []),
        ("", [], []),
    ],
)
def test_the_accepted_answer_and_its_sentence_are_found_in_the_text(answer, answers, needles):
    pieces = ["He", " sat", " down", ".", " The", " carpet", " costs", " 45", "11", ".", " She", " left", "."]
    assert places_of(answer, pieces) == (answers, needles)


def test_an_answer_that_stands_everywhere_is_not_marked():
    assert places_of("yes", ["yes", " "] * 20) == ([], [])


def test_a_cell_belongs_to_the_papers_whose_experiments_list_it():
    cell = {"policy": "keydiff", "task": "longbench_mini/code", "budget": "43%", "prompt": "blocked"}
    assert "keydiff" in papers_of(cell)
    assert "keydiff" not in papers_of({**cell, "budget": "44%"})
    assert "keydiff" in papers_of({**cell, "policy": "oracle"})
    assert papers_of({**cell, "task": "nowhere"}) == ()


def test_text_stays_readable_on_the_strongest_colour_of_the_viewer():
    """WCAG 2.2, 1.4.3: 4.5 to 1. The share of a policy's colour is in site.css."""
    style = (Path(site_builder.__file__).parent / "site.css").read_text()
    shares = [int(share) / 100 for share in re.findall(r'data-level="\d"\] \{ --share: (\d+)', style)]
    assert shares == sorted(shares)
    assert len(shares) == 5
    for name in (f"{correction}{family}" for family in FAMILIES for correction in ("", "caote_", "fastcaote_")):
        look = look_of(name)
        for scheme, colour in (("light", look.light), ("dark", look.dark)):
            assert contrast(INK[scheme], mixed(colour, CARD[scheme], shares[-1])) >= 4.5, (name, scheme)


def mixed(colour: str, ground: str, share: float) -> str:
    """As ``color-mix(in srgb, colour share, transparent)`` over the ground."""
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def test_the_same_rows_give_the_same_bytes(results, site, tmp_path, call):
    code, printed = call(command, f"results_dir={results}", f"out={tmp_path / 'again'}")
    assert code == 0, printed
    assert f"open {tmp_path / 'again'}/index.html" in printed
    files = {file.relative_to(site): file.read_bytes() for file in site.rglob("*") if file.is_file()}
    again = {file.relative_to(tmp_path / "again"): file for file in (tmp_path / "again").rglob("*") if file.is_file()}
    assert set(files) == set(again)
    assert all(again[name].read_bytes() == content for name, content in files.items())


def test_rows_are_checked_before_anything_is_drawn(results):
    with pytest.raises(ValueError, match="no rows to report"):
        SiteContents.of(checked_rows(load_rows(results)).iloc[:0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["results=x"], "There is no setting 'results'. Did you mean results_dir?"),
        (["results_dir"], "'results_dir' is not a setting: write key=value"),
        (["results_dir=/does/not/exist"], "There is no folder /does/not/exist"),
        (["scale=huge"], "There is no scale called 'huge'"),
        (["results_dir={empty}"], "There are no rows under"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(call, tmp_path, arguments, sentence):
    code, printed = call(command, *(each.format(empty=tmp_path) for each in arguments))
    assert code == 2
    assert sentence in printed
    assert printed.count("\n") == 1
