"""Every figure of the five papers: how it is drawn, which stored diagnostics it needs, and drawing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pandas as pd

from harness.errors import UserError
from harness.papers.figures import (
    answer_figures,
    budget_figures,
    first_token_figures,
    head_figures,
    key_figures,
    prompt_figures,
    score_figures,
    settings_figures,
    token_figures,
    window_figures,
)
from harness.papers.figures.budget_figures import PanelMetric
from harness.papers.figures.canvas import (
    NARROW,
    WIDE,
    Drawing,
    FigureSlot,
    NotDrawnError,
    Sketch,
    render_figure,
    render_pixels,
    white_page_style,
)
from harness.papers.figures.figure_cells import experiment_name
from harness.papers.figures.figure_data import PROMPTS, FigureData, FigureDataOfItems
from harness.papers.published import FULL, OURS, PAPER_TITLES, Scale, paper_items
from harness.report.labels import ordered_budgets
from harness.store.store import Store
from policies import nearest

MOST_AT_SMALL = 8  # prompts: recording 30 layers over 1,024 tokens took more than a minute each on two cores


@dataclass(frozen=True)
class FigureDiagnostics:
    """The stored diagnostics that a figure needs, and of how many samples at each scale."""

    names: tuple[str, ...] = ()
    full: int = 1
    mini: int = 1
    of_dense: bool = False  # of the dense run, the same for all policies: the first cell is enough

    def samples(self, scale: Scale) -> int:
        """How many samples of the task are diagnosed at a scale."""
        if scale == FULL:
            return self.full
        return min(self.mini, MOST_AT_SMALL) if scale == "small" else self.mini


@dataclass(frozen=True)
class FigureSpec:
    """How one figure is made, on a canvas of so many CSS pixels.

    ``rows_of``: the item whose cells it is drawn from, where it has none of its own.
    """

    draw: Callable[[FigureData, float], Sketch]
    diagnostics: FigureDiagnostics = FigureDiagnostics()
    rows_of: str = ""


KEY_CLOUD = FigureDiagnostics(("key_points",), full=PROMPTS, mini=PROMPTS)
VECTORS = FigureDiagnostics(("key_points", "query_points"), full=PROMPTS, mini=PROMPTS)
KEPT = FigureDiagnostics(("kept",), full=PROMPTS, mini=PROMPTS)
HEAD_VALUES = FigureDiagnostics(("key_query",), full=5, mini=5)


def _key_cloud(layer: int, head: int) -> FigureSpec:
    return FigureSpec(partial(key_figures.draw_key_clouds, layer=layer, head=head), KEY_CLOUD)


def _rouge_metrics(*tables: str) -> tuple[PanelMetric, ...]:
    return (
        PanelMetric("ROUGE-1", ("rouge_1",), tables),
        PanelMetric("ROUGE-2", ("rouge_2",), tables),
        PanelMetric("ROUGE-L", ("rouge_l",), tables),
    )


def _quality_panels(bert: str, rouge: str, judge: str) -> FigureSpec:
    panels = (
        PanelMetric("BERTScore F1", ("bert_f1",), (bert,)),
        PanelMetric("ROUGE-L", ("rougeL",), (rouge,)),
        PanelMetric("judge (mean, 1 to 5)", ("judge",), (judge,)),
    )
    return FigureSpec(partial(budget_figures.draw_budget_curves, panels=panels))


def _budget_curves(*panels: PanelMetric) -> FigureSpec:
    return FigureSpec(partial(budget_figures.draw_budget_curves, panels=panels))


FIGURES: dict[tuple[str, str], FigureSpec] = {
    ("keydiff", "Figure 2"): FigureSpec(
        first_token_figures.draw_cosines_and_attention,
        FigureDiagnostics(("first_tokens",), full=PROMPTS, mini=PROMPTS, of_dense=True),
    ),
    ("keydiff", "Figure 4"): _key_cloud(5, 3),
    ("keydiff", "Figure 5"): FigureSpec(key_figures.draw_volumes, FigureDiagnostics(("log_det",), full=100, mini=10)),
    ("keydiff", "Figure 6"): FigureSpec(prompt_figures.draw_needle_maps),
    ("keydiff", "Figure 7"): _key_cloud(27, 4),
    ("keydiff", "Figure 8"): _key_cloud(20, 0),
    ("keydiff", "Figure 9"): _key_cloud(8, 1),
    ("keydiff", "Figure 10"): FigureSpec(partial(prompt_figures.draw_lengths, tables=("Table 5",)), rows_of="Table 8"),
    ("keydiff", "Figure 11"): FigureSpec(partial(key_figures.draw_vector_histograms, what="angle"), VECTORS),
    ("keydiff", "Figure 12"): FigureSpec(
        partial(head_figures.draw_head_values, column="cosine_of_means", title="cosine of mean key and mean query"),
        HEAD_VALUES,
    ),
    ("keydiff", "Figure 13"): FigureSpec(partial(key_figures.draw_vector_histograms, what="norm"), VECTORS),
    ("keydiff", "Figure 14"): FigureSpec(
        partial(
            head_figures.draw_head_values, column="cosine_of_distinct", title="cosine of distinct keys and mean query"
        ),
        HEAD_VALUES,
    ),
    ("caote", "Figure 2"): FigureSpec(partial(prompt_figures.draw_needle_maps, tables=("Table 5",), budget="6144")),
    ("caote", "Figure 3"): FigureSpec(
        head_figures.draw_layer_curves, FigureDiagnostics(("output_error",), full=5, mini=5)
    ),
    ("buzz", "Figure 4"): FigureSpec(
        partial(
            settings_figures.draw_settings_curve,
            panels=_rouge_metrics("Table A"),
            policy="buzz",
            pattern=r"ratio([\d.]+)",
            note=r"T_over_w=([\d.]+)",
            axis="threshold over window, T/w",
        )
    ),
    ("buzz", "Figure 5"): _budget_curves(*_rouge_metrics("Table B")),
    ("buzz", "Figure 6"): FigureSpec(
        partial(
            score_figures.draw_bars,
            group="axis_gold_at",
            axis="place of the document with the answer",
            metric=("exact_match",),
            averaged=True,
        )
    ),
    ("buzz", "Figure 7"): FigureSpec(score_figures.draw_self_bleu_map),
    ("buzz", "Figure 8a"): _budget_curves(*_rouge_metrics()),
    ("buzz", "Figure 8b"): FigureSpec(
        partial(
            score_figures.draw_bars,
            group="budget",
            axis="cache budget (% of prompt and generation)",
            metric=("rouge_l",),
        )
    ),
    ("buzz", "Figure 9"): FigureSpec(partial(answer_figures.draw_answers, tables=("Figure 9",))),
    ("hashevict", "Figure 2"): _quality_panels("Table 4", "Table 5", "Table 6"),
    ("hashevict", "Figure 3"): _quality_panels("Table 7", "Table 8", "Table 9"),
    ("hashevict", "Figure 4"): _budget_curves(PanelMetric("accuracy", ("accuracy",))),
    ("hashevict", "Figure 5"): _budget_curves(PanelMetric("string match", ("string_match",))),
    ("hashevict", "Figure 6"): _budget_curves(PanelMetric("ROUGE-L", ("rougeL", "rouge_l"), ("Table 1",))),
    ("hashevict", "Figure 7"): FigureSpec(
        partial(first_token_figures.draw_attention_and_norms, layer=8, heads=(0, 8, 16, 24, 31)),
        FigureDiagnostics(("first_tokens", "key_points"), full=PROMPTS, mini=PROMPTS),
    ),
    ("hashevict", "Figure 8"): FigureSpec(
        head_figures.draw_layer_head_maps, FigureDiagnostics(("ranking_loss",), full=10, mini=5)
    ),
    ("hashevict", "Figure 9"): FigureSpec(
        partial(head_figures.draw_correlations, tables=("Table 11",)), FigureDiagnostics(("lsh",), full=50, mini=5)
    ),
    ("kvec", "Figure 1"): FigureSpec(score_figures.draw_coverage_curve),
    ("kvec", "Figure 2"): FigureSpec(
        partial(window_figures.draw_window_scores, layer=0, head=0, policy="snapkv/kvec"),
        FigureDiagnostics(("window_attention",), full=PROMPTS, mini=PROMPTS, of_dense=True),
    ),
    ("kvec", "Figure 3"): FigureSpec(partial(token_figures.draw_kept_text, policy="snapkv/kvec"), KEPT),
    ("kvec", "Figure 4"): FigureSpec(token_figures.draw_kept_maps, KEPT),
}

# Figures that no paper prints, by the item of the page ``ours``.
OUR_FIGURES: dict[str, FigureSpec] = {
    "Realised budget": FigureSpec(
        answer_figures.draw_memory_over_answers, FigureDiagnostics(("memory",), full=5, mini=3), rows_of="realised"
    ),
}

# Tables whose numbers are diagnostics, not scores; reports read the same stored diagnostics.
TABLES: dict[tuple[str, str], FigureDiagnostics] = {
    ("caote", "Table 8"): FigureDiagnostics(("score_ranks",), full=1, mini=3),
    ("hashevict", "Table 3"): FigureDiagnostics(("attention_loss",), full=10, mini=3),
}


def item_with_cells(paper: str, item: str) -> str:
    """The item whose experiment has the cells of this one; itself for most."""
    plan = OUR_FIGURES[item] if paper == OURS else FIGURES.get((paper, item))
    return (plan.rows_of if plan else "") or item


def diagnostics_of(paper: str, item: str) -> FigureDiagnostics:
    """The diagnostics that a figure or table takes; none for most."""
    if paper == OURS:
        return OUR_FIGURES[item].diagnostics
    return FIGURES[paper, item].diagnostics if (paper, item) in FIGURES else TABLES[paper, item]


DRAWING = "drawing"  # what items.csv calls a figure that shows no measurement


def draw_figure(paper: str, item: str, rows: pd.DataFrame, store: Store, scale: Scale = "mini") -> Drawing | None:
    """The figure, or None where it cannot be drawn; `figure_or_reason` says why.

    ``item``: as in `harness.papers.published.paper_items` (``Figure 8a``). ``rows``: of
    `harness.store.loading.load_rows`. ``store``: the store that the rows are from; diagnostics are in the folder next
    to it. Raises `UserError` for an unknown paper or figure.
    """
    return figure_or_reason(paper, item, FigureDataOfItems(rows, store, scale)).drawing


def figure_or_reason(paper: str, item: str, stored: FigureDataOfItems) -> FigureSlot:
    """The figure, or the reason why there is none. Raises `UserError` for an unknown paper or figure."""
    listed = paper_items(paper).set_index("item")
    if item not in listed.index:
        figures = [name for name in listed.index if name.startswith("Figure")]
        raise UserError(f"There is no '{item}' in the figures of {PAPER_TITLES[paper]}. {nearest(item, figures)}")
    entry = listed.loc[item]
    if entry["needs"] == DRAWING:
        return FigureSlot(None, f"An illustration ({entry['shows']}): nothing in it is measured.")
    if (paper, item) not in FIGURES:
        return FigureSlot(None, "Not a figure: its numbers stand in a table.")
    return _drawn(FIGURES[paper, item], paper, item, f"{PAPER_TITLES[paper]} {item}: {entry['shows']}.", stored)


def our_figure_or_reason(item: str, stored: FigureDataOfItems) -> FigureSlot:
    """The same of one of `OUR_FIGURES`."""
    return _drawn(OUR_FIGURES[item], OURS, item, f"{item}, over the length of the answer.", stored)


def _drawn(plan: FigureSpec, paper: str, item: str, title: str, stored: FigureDataOfItems) -> FigureSlot:
    try:
        data = stored.of(paper, plan.rows_of or item)
        with white_page_style():
            sketch, slim = plan.draw(data, WIDE), plan.draw(data, NARROW)
            caption = f"{title} {_setting_text(data)} {sketch.says}"
            name = f"{paper}-{experiment_name(item)}-{stored.scale}"
            svg, png = render_figure(sketch, name, caption), render_pixels(sketch)
            narrow = render_figure(slim, f"{name}-narrow", caption)
    except NotDrawnError as reason:
        return FigureSlot(None, str(reason))
    return FigureSlot(Drawing(svg, narrow, png, caption, sketch.notes))


def _setting_text(data: FigureData) -> str:
    """Model, tasks and budgets behind the figure, as a sentence."""
    cells = data.rows if not data.rows.empty else data.diagnosed
    tasks, budgets = ", ".join(dict.fromkeys(cells["task"])), ", ".join(ordered_budgets(cells["budget"]))
    model = f"{data.model} (scale={data.wanted.scale}, not the paper's model)" if data.of_stand_in else data.model
    return f"Ours: {model}, {tasks}, budget {budgets}."
