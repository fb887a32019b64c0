"""Figures: every one of the papers' list is drawn or has its reason, and shows exactly what is stored."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pandas as pd
import pytest
from figures.material_for_figures import cell_of, keys_of, rows_of, store_with_diagnostics
from matplotlib.backends.backend_agg import FigureCanvasAgg

from harness.config.policy_config import preset
from harness.errors import UserError
from harness.papers.figures.canvas import NARROW, WIDE, Sketch, white_page_style
from harness.papers.figures.figure_cells import SCALES, figure_cells
from harness.papers.figures.figure_data import FigureDataOfItems, natural_key, spread_of_heads
from harness.papers.figures.figure_index import FIGURES, draw_figure, figure_or_reason, our_figure_or_reason
from harness.papers.published import PAPERS, paper_items
from harness.report.svg import PX
from harness.store.store import Store

LISTED = [(paper, item) for paper in PAPERS for item in paper_items(paper)["item"] if item.startswith("Figure")]
WITH_DIAGNOSTICS = [key for key, plan in FIGURES.items() if plan.diagnostics.names]
MEMORY_OF = ("window", "keydiff", "snapkv/kvec")
SCORED = [key for key in FIGURES if key not in WITH_DIAGNOSTICS]
AT_FULL_SCALE = [
    ("buzz", "Figure 5"),
    ("buzz", "Figure 6"),
    ("buzz", "Figure 7"),
    ("hashevict", "Figure 2"),
    ("keydiff", "Figure 10"),
]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    keys = [key for figure in SCORED for key in keys_of(*figure, "mini")]
    return rows_of(dict.fromkeys(keys), "mini")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return store_with_diagnostics(tmp_path_factory.mktemp("figures"), WITH_DIAGNOSTICS, "mini")


@pytest.fixture(scope="module")
def sketches() -> dict[tuple[tuple[str, str], float], Sketch]:
    """What `gallery` has drawn, by figure and width."""
    return {}


@pytest.fixture(scope="module")
def gallery(rows, store, sketches):
    """Every figure, drawn once."""

    def remembered(figure, draw):
        return lambda data, width: sketches.setdefault((figure, width), draw(data, width))

    kept = {figure: replace(plan, draw=remembered(figure, plan.draw)) for figure, plan in FIGURES.items()}
    with pytest.MonkeyPatch.context() as patch:
        for figure, plan in kept.items():
            patch.setitem(FIGURES, figure, plan)
        return {figure: figure_or_reason(*figure, FigureDataOfItems(rows, store, "mini")) for figure in LISTED}


def test_every_figure_of_the_list_is_drawn_or_has_its_reason(gallery):
    for figure, found in gallery.items():
        assert (found.drawing is None) == bool(found.reason), figure
    missing = {figure for figure, found in gallery.items() if found.drawing is None}
    illustrations = {
        (paper, item) for paper, item in LISTED if paper_items(paper).set_index("item").loc[item, "needs"] == "drawing"
    }
    assert missing == illustrations
    assert set(FIGURES) == set(LISTED) - illustrations


def test_every_drawing_stands_alone_and_names_samples_and_units(gallery):
    for figure, found in gallery.items():
        if found.drawing is None:
            continue
        assert found.drawing.png.startswith(b"\x89PNG")
        for svg, width in ((found.drawing.svg, WIDE), (found.drawing.narrow, NARROW)):
            root = ElementTree.fromstring(svg)
            assert float(root.attrib["width"]) == width, figure  # a card's, so that text keeps its size
            assert root.attrib["aria-label"] == found.drawing.caption
            assert "http" not in svg.replace("http://www.w3.org/2000/svg", ""), figure
            assert len(svg) < 400_000, figure
            text = " ".join("".join(each.itertext()) for each in root.iter() if each.tag.endswith("text"))
            assert "n =" in text or "Rule: " in text or "n: prompts" in text, figure
            assert "interval" in text or "standard deviation" in text, figure


def test_no_text_is_smaller_than_11_pixels(gallery):
    for figure, found in gallery.items():
        if found.drawing is None:
            continue
        for svg in (found.drawing.svg, found.drawing.narrow):
            sizes = {float(size) for size in re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", svg)}
            assert min(sizes) >= 11, figure


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("figure", FIGURES, ids=" ".join)
def test_no_label_is_cut_and_no_legend_lies_over_data(figure, width, gallery, sketches):
    with white_page_style():
        drawn = sketches[figure, width].figure
        renderer = FigureCanvasAgg(drawn).get_renderer()
        drawn.draw_without_rendering()
        taken = drawn.get_tightbbox(renderer)  # inches, of everything that is drawn, text in matplotlib's own wide font
        size = drawn.get_size_inches()
        assert taken.x0 > -PX
        assert taken.y0 > -PX
        assert taken.x1 < size[0] + PX
        assert taken.y1 < size[1] + PX
        for legend in drawn.legends:
            box = legend.get_window_extent()
            assert not any(box.overlaps(axes.get_window_extent()) for axes in drawn.axes)


def test_what_was_not_measured_is_said_and_zero_has_its_mark(rows, store):
    figure = ("buzz", "Figure 8b")
    own = rows["policy"].isin(["buzz"]) & rows["task"].isin(figure_cells(*figure, "mini").values("task"))
    changed = rows[~(own & rows["budget"].eq("60%"))].copy()
    changed.loc[own, "value"] = 0.0
    svg = draw_figure(*figure, changed, store).svg
    assert svg.count(">not measured<") == 1
    assert svg.count(">.00<") >= 5


def test_the_heads_of_a_spread_are_those_at_the_tenth_half_and_ninetieth_percent():
    numbers = pd.Series({(layer, head): float((7 * layer + head) % 11) for layer in range(2) for head in range(5)})
    ranked = sorted(numbers.index, key=lambda key: numbers[key])
    assert spread_of_heads(numbers) == [ranked[1], ranked[4], ranked[8]]
    assert spread_of_heads(pd.Series({(0, 0): 1.0})) == [(0, 0)]


def test_shares_are_of_each_ones_own_dense_and_raw_scores_of_two_models_share_no_axis(rows, store):
    """HashEvict prints dense, BUZZ does not: its points get panels for themselves."""
    for figure, expected in ((("hashevict", "Figure 6"), True), (("buzz", "Figure 5"), False)):
        svg = draw_figure(*figure, rows, store).svg
        assert ("the paper's ROUGE-L (no dense printed)" in svg) != expected
        assert "share of dense" in svg


@pytest.mark.parametrize("figure", [("caote", "Figure 2"), ("buzz", "Figure 5"), ("buzz", "Figure 8b")])
def test_the_same_rows_give_the_same_bytes_and_another_score_another_figure(figure, gallery, rows, store):
    again = draw_figure(*figure, rows, store)
    assert again == gallery[figure].drawing
    task, policy = (figure_cells(*figure, "mini").values(name)[0] for name in ("task", "policy"))
    own = rows[(rows["task"] == task) & (rows["policy"] == policy)].index[0]
    changed = rows.copy()
    changed.loc[own, "value"] = 1 - changed.loc[own, "value"]
    assert draw_figure(*figure, changed, store).svg != again.svg
    other = ("hashevict", "Figure 4")
    assert draw_figure(*other, changed, store) == gallery[other].drawing


def test_another_diagnostic_gives_another_figure_and_only_where_it_is_shown(gallery, rows, store):
    shown, other = ("caote", "Figure 3"), ("kvec", "Figure 4")
    files = list((store.root.parent / "diagnostics").glob("*/output_error/*.parquet"))
    before = {file: file.read_bytes() for file in files}
    for file in files:
        frame = pd.read_parquet(file)
        frame.assign(squared_error=2 * frame["squared_error"]).to_parquet(file, index=False)
    try:
        assert draw_figure(*shown, rows, store).svg != gallery[shown].drawing.svg
        assert draw_figure(*other, rows, store) == gallery[other].drawing
    finally:
        for file, content in before.items():
            file.write_bytes(content)


def test_cells_that_broke_a_promise_are_left_out(gallery, rows, store):
    figure = ("buzz", "Figure 8b")
    broken = rows.copy()
    broken.loc[rows["policy"] == "buzz/no_max", "invalid"] = "The ledger broke."
    assert ">not measured<" not in gallery[figure].drawing.svg
    assert ">not measured<" in draw_figure(*figure, broken, store).svg


@pytest.mark.parametrize("figure", AT_FULL_SCALE)
def test_at_the_papers_own_setting_printed_numbers_are_drawn_with_ours(figure, tmp_path):
    rows = rows_of(keys_of(*figure, "full"), "full")
    found = draw_figure(*figure, rows, Store(tmp_path / "runs"), "full")
    assert found is not None
    assert "scale=mini" not in found.caption
    printed = {
        ("buzz", "Figure 5"): "printed in the paper",
        ("hashevict", "Figure 2"): "printed in the paper",
        ("keydiff", "Figure 10"): "Llama-2",
    }
    assert printed.get(figure, "") in found.svg
    if figure == ("hashevict", "Figure 2"):
        assert all(title in found.svg for title in ("BERTScore F1", "ROUGE-L", "judge"))
    if figure == ("buzz", "Figure 6"):
        assert all(f">{group}<" in found.svg for group in ("0", "4", "9", "average"))


def stored_in(folder) -> FigureDataOfItems:
    """What a results folder without rows has."""
    return FigureDataOfItems(pd.DataFrame(), Store(folder / "runs"), "mini")


def test_without_rows_and_diagnostics_the_reason_names_the_command(tmp_path):
    nothing = stored_in(tmp_path)
    assert "`python -m harness +exp=buzz/figure_5 scale=mini`" in figure_or_reason("buzz", "Figure 5", nothing).reason
    reason = figure_or_reason("kvec", "Figure 4", nothing).reason
    assert "`python -m harness figures paper=kvec item=figure_4 scale=mini`" in reason
    assert "illustration" in figure_or_reason("keydiff", "Figure 3", nothing).reason


def test_policies_that_hold_the_same_share_a_line_of_the_memory_figure(tmp_path):
    """Two hard budgets and one policy that grows with the answer, on two samples."""
    store = Store(tmp_path / "diagnostics")
    keys = [key for key in figure_cells("ours", "realised", "mini").keys if key[0] in MEMORY_OF]
    for key in keys:
        cell = cell_of(key, "testbed", "mini")
        store.describe(cell["cell_id"], {**cell, "seed": 0, "created": "2026-11-21"})
        for sample in ("r0", "r1"):
            steps = range(6)
            held = [10.0 + (step if key[0] == "snapkv/kvec" else 0) for step in steps]
            frame = pd.DataFrame(
                {
                    "sample_id": sample, "step": steps, "phase": ["prompt"] + 5 * ["decode"], "answer": steps,
                    "fed": [40 + step for step in steps], "held": held, "most": held,
                    "evicted": [40 + step - slots for step, slots in zip(steps, held, strict=True)],
                }
            )  # fmt: skip
            file = store.root / cell["cell_id"] / "memory" / f"{sample}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            frame.to_parquet(file, index=False)
    found = our_figure_or_reason("Realised budget", stored_in(tmp_path))
    assert not found.reason
    assert found.drawing.notes == ("The same curves as window: keydiff.",)
    assert "n = 2" in found.drawing.caption
    assert {"window and 1 more", "snapkv/kvec"} <= set(re.findall(r">([^<>]+)</text>", found.drawing.svg))
    nothing = our_figure_or_reason("Realised budget", stored_in(tmp_path / "nowhere"))
    assert "`python -m harness figures paper=ours item=realised scale=mini` measures it" in nothing.reason


def test_an_unknown_figure_is_answered_with_the_nearest_known_one(tmp_path):
    with pytest.raises(UserError, match="Did you mean Figure 8b or Figure 8a"):
        draw_figure("buzz", "Figure 8c", pd.DataFrame(), Store(tmp_path / "runs"))


def test_presets_are_called_as_rows_call_them():
    asked = {
        key[0]
        for figure in FIGURES
        if not FIGURES[figure].rows_of
        for scale in SCALES
        for key in figure_cells(*figure, scale).keys
    }
    own = {"buzz/ratio", "fastgen/", "kvec/no_"}  # named by the experiment itself
    for name in asked:
        if not any(name.startswith(prefix) for prefix in own):
            assert preset(name)["name"] == name


def test_samples_are_taken_in_the_order_of_their_numbers():
    assert min(["L1024-r0", "L512-r10", "L512-r2"], key=natural_key) == "L512-r2"


def test_at_small_a_figure_is_of_few_prompts_and_never_of_more_than_at_mini():
    for plan in FIGURES.values():
        assert plan.diagnostics.samples("small") == min(8, plan.diagnostics.samples("mini"))
