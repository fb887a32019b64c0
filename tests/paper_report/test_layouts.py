"""The layouts: every printed number has exactly one place, and what stands in at scale=mini is what the grids run."""

from __future__ import annotations

import pytest

from harness.papers import published
from harness.papers.figures.figure_cells import figure_cells
from harness.papers.published import PAPERS, name_map, paper_items, published_frame, task_labels
from harness.papers.table_layouts import layout, printed_numbers, printed_title

TABLES = [
    (paper, name) for paper in PAPERS for name in published_frame(paper)["table"].unique() if name.startswith("Table")
]

WITHOUT = ("book_perplexity",)  # the same task at both scales


@pytest.mark.parametrize(("paper", "item"), TABLES)
def test_every_printed_number_has_coordinates_of_its_own(paper, item):
    own = layout(paper, item)
    assert own is not None
    places = printed_numbers(paper, item)
    keys = {tuple(each.at.get(name, "") for name in (*own.panels, *own.rows, *own.columns)) for each in places}
    assert len(keys) == len(places) == (published_frame(paper)["table"] == item).sum()


def test_every_table_that_shows_numbers_has_a_layout():
    for paper in PAPERS:
        for line in paper_items(paper).to_dict("records"):
            if line["item"].startswith("Table") and line["needs"] not in ("drawing", "analytic"):
                assert layout(paper, line["item"]) is not None, (paper, line["item"])


def test_a_table_of_which_only_the_caption_is_known_is_written_out_with_one_dense_row():
    places = printed_numbers("keydiff", "Table 9")
    assert {each.at["model"] for each in places} == {"qwen2.5-7b-instruct", "qwen2.5-3b-instruct"}
    dense = [each for each in places if each.at["method"] == "dense"]
    assert len(dense) == 2 * 22
    assert all(each.printed == "" for each in places)


def test_every_task_of_the_papers_has_a_proxy():
    for paper in PAPERS:
        own = {**name_map()["tasks"]["any"], **name_map()["tasks"].get(paper, {})}
        for name in own:
            for label in task_labels(paper, name):
                assert label in (*published._stand_ins("mini")["tasks"], *WITHOUT), (paper, name)


@pytest.mark.parametrize("scale", published.OF_OUR_MODELS)
@pytest.mark.parametrize("paper", PAPERS)
def test_proxies_are_what_the_grids_run(paper, scale):
    """A drifting grid would leave places empty without a word."""
    run: dict[str, set] = {"task": set(), "budget": set(), "block_size": set()}
    for line in paper_items(paper).to_dict("records"):
        if line["needs"] != "drawing":
            for name in run:
                run[name] |= set(figure_cells(paper, line["item"], scale).values(name))
    written = published._stand_ins(scale)
    assert set(written["budgets"].get(paper, {}).values()) <= run["budget"]
    assert set(written["block_sizes"].get(paper, {}).values()) <= run["block_size"]
    names = (name_map()["tasks"]["any"], name_map()["tasks"].get(paper, {}))
    own = {label for tasks in names for labels in tasks.values() for label in labels or ()}
    assert run["task"] <= set(written["tasks"].values()) | own | {"book_perplexity"}


def test_methods_and_models_are_called_as_in_print():
    assert printed_title("fastcaote_snapkv") == "SnapKV + FastCAOTE"
    for paper in PAPERS:
        for method in name_map()["methods"][paper]:
            assert printed_title(method) != method or method == "none", method
