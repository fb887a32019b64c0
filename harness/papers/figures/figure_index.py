"""Every figure of the five papers: which kind of drawing it is, and which stored diagnostics it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pandas as pd

from harness.errors import UserError
from harness.papers.figures import (
    budget_figures,
    head_figures,
    key_figures,
    prompt_figures,
    score_figures,
    token_figures,
)
from harness.papers.figures.budget_figures import Metric
from harness.papers.figures.canvas import Drawing, FigureSlot, NotDrawnError, Sketch, canvas, rendered
from harness.papers.figures.figure_data import FigureData, experiment, gathered
from harness.papers.published import items
from harness.report.labels import ordered_budgets
from harness.store.store import Store
from policies import nearest


@dataclass(frozen=True)
class FigureDiagnostics:
    """Diagnostics that are stored for a figure, and of how many samples at each scale."""

    diagnostics: tuple[str, ...] = ()
    full: int = 1
    mini: int = 1
    of_dense: bool = False  # of the dense run, alike for all policies: the first cell is enough

    def samples(self, scale: str) -> int:
        """How many samples of the task are looked into at a scale."""
        return self.full if scale == "full" else self.mini


@dataclass(frozen=True)
class FigureSpec:
    """How one figure comes about. ``rows_of``: the item whose cells it is drawn from, where it has none of its own."""

    draw: Callable[[FigureData], Sketch]
    inside: FigureDiagnostics = FigureDiagnostics()
    rows_of: str = ""


CLOUD = FigureDiagnostics(("key_points",))
VECTORS = FigureDiagnostics(("key_points", "query_points"))
HEADS = FigureDiagnostics(("key_query",), full=5, mini=5)


def _cloud(layer: int, head: int) -> FigureSpec:
    return FigureSpec(partial(key_figures.draw_key_clouds, layer=layer, head=head), CLOUD)


def _rouge(*tables: str) -> tuple[Metric, ...]:
    return (
        Metric("ROUGE-1", ("rouge_1",), tables),
        Metric("ROUGE-2", ("rouge_2",), tables),
        Metric("ROUGE-L", ("rouge_l",), tables),
    )


def _answers(bert: str, rouge: str, judge: str) -> FigureSpec:
    panels = (
        Metric("BERTScore F1", ("bert_f1",), (bert,)),
        Metric("ROUGE-L", ("rougeL",), (rouge,)),
        Metric("judge (mean, 1 to 5)", ("judge",), (judge,)),
    )
    return FigureSpec(partial(budget_figures.draw_budget_curves, panels=panels))


def _curves(*panels: Metric) -> FigureSpec:
    return FigureSpec(partial(budget_figures.draw_budget_curves, panels=panels))


FIGURES: dict[tuple[str, str], FigureSpec] = {
    ("keydiff", "Figure 2"): FigureSpec(
        token_figures.cosines_and_attention, FigureDiagnostics(("first_tokens",), of_dense=True)
    ),
    ("keydiff", "Figure 4"): _cloud(5, 3),
    ("keydiff", "Figure 5"): FigureSpec(key_figures.draw_volumes, FigureDiagnostics(("log_det",), full=100, mini=10)),
    ("keydiff", "Figure 6"): FigureSpec(prompt_figures.draw_needle_maps),
    ("keydiff", "Figure 7"): _cloud(27, 4),
    ("keydiff", "Figure 8"): _cloud(20, 0),
    ("keydiff", "Figure 9"): _cloud(8, 1),
    ("keydiff", "Figure 10"): FigureSpec(partial(prompt_figures.draw_lengths, tables=("Table 5",)), rows_of="Table 8"),
    ("keydiff", "Figure 11"): FigureSpec(partial(key_figures.draw_vector_histograms, what="angle"), VECTORS),
    ("keydiff", "Figure 12"): FigureSpec(
        partial(head_figures.draw_head_values, column="cosine_of_means", title="cosine of mean key and mean query"),
        HEADS,
    ),
    ("keydiff", "Figure 13"): FigureSpec(partial(key_figures.draw_vector_histograms, what="norm"), VECTORS),
    ("keydiff", "Figure 14"): FigureSpec(
        partial(
            head_figures.draw_head_values, column="cosine_of_distinct", title="cosine of distinct keys and mean query"
        ),
        HEADS,
    ),
    ("caote", "Figure 2"): FigureSpec(partial(prompt_figures.draw_needle_maps, tables=("Table 5",), budget="6144")),
    ("caote", "Figure 3"): FigureSpec(
        head_figures.draw_layer_curves, FigureDiagnostics(("output_error",), full=5, mini=5)
    ),
    ("buzz", "Figure 4"): FigureSpec(
        partial(
            budget_figures.draw_settings_curve,
            panels=_rouge("Table A"),
            policy="buzz",
            pattern=r"ratio([\d.]+)",
            note=r"T_over_w=([\d.]+)",
            axis="threshold over window, T/w",
        )
    ),
    ("buzz", "Figure 5"): _curves(*_rouge("Table B")),
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
    ("buzz", "Figure 8a"): _curves(*_rouge()),
    ("buzz", "Figure 8b"): FigureSpec(
        partial(
            score_figures.draw_bars,
            group="budget",
            axis="cache budget (% of prompt and generation)",
            metric=("rouge_l",),
        )
    ),
    ("buzz", "Figure 9"): FigureSpec(partial(score_figures.draw_answers, tables=("Figure 9",))),
    ("hashevict", "Figure 2"): _answers("Table 4", "Table 5", "Table 6"),
    ("hashevict", "Figure 3"): _answers("Table 7", "Table 8", "Table 9"),
    ("hashevict", "Figure 4"): _curves(Metric("accuracy", ("accuracy",))),
    ("hashevict", "Figure 5"): _curves(Metric("string match", ("string_match",))),
    ("hashevict", "Figure 6"): _curves(Metric("ROUGE-L", ("rougeL", "rouge_l"), ("Table 1",))),
    ("hashevict", "Figure 7"): FigureSpec(
        partial(token_figures.attention_and_norms, layer=8, heads=(0, 8, 16, 24, 31)),
        FigureDiagnostics(("first_tokens", "key_points")),
    ),
    ("hashevict", "Figure 8"): FigureSpec(
        head_figures.draw_layer_head_maps, FigureDiagnostics(("ranking_loss",), full=10, mini=5)
    ),
    ("hashevict", "Figure 9"): FigureSpec(
        partial(head_figures.draw_correlations, tables=("Table 11",)), FigureDiagnostics(("lsh",), full=50, mini=5)
    ),
    ("kvec", "Figure 1"): FigureSpec(score_figures.draw_coverage_curve),
    ("kvec", "Figure 2"): FigureSpec(
        partial(token_figures.draw_window_scores, layer=0, head=0, policy="snapkv/kvec"),
        FigureDiagnostics(("window_attention",), of_dense=True),
    ),
    ("kvec", "Figure 3"): FigureSpec(partial(token_figures.text, policy="snapkv/kvec"), FigureDiagnostics(("kept",))),
    ("kvec", "Figure 4"): FigureSpec(token_figures.maps, FigureDiagnostics(("kept",))),
}

# Tables that print numbers from inside the model; reports read the same stored diagnostics.
TABLES: dict[tuple[str, str], FigureDiagnostics] = {
    ("caote", "Table 8"): FigureDiagnostics(("score_ranks",), full=1, mini=3),
    ("hashevict", "Table 3"): FigureDiagnostics(("attention_loss",), full=10, mini=3),
}


def inside_of(paper: str, item: str) -> FigureDiagnostics:
    """The diagnostics that a figure or table takes; none for most."""
    return FIGURES[paper, item].inside if (paper, item) in FIGURES else TABLES[paper, item]


# The entry point: one figure of one paper from rows and a store, or the reason why there is none.


TITLES = {"keydiff": "KeyDiff", "caote": "CAOTE", "buzz": "BUZZ", "hashevict": "HashEvict", "kvec": "K-VEC"}
DRAWING = "drawing"  # what items.csv calls a figure that shows no measurement


def drawn(paper: str, item: str, rows: pd.DataFrame, store: Store) -> Drawing | None:
    """The figure, or None where it cannot be drawn; `place` says why.

    ``item``: as in `harness.papers.published.items` (``Figure 8a``). ``rows``: of `harness.store.loading.load_rows`. ``store``: the
    store they are from; diagnostics lie beside it. Raises `UserError` for an unknown paper or figure.
    """
    return place(paper, item, rows, store).drawing


def place(paper: str, item: str, rows: pd.DataFrame, store: Store) -> FigureSlot:
    """The figure, or the reason why there is none. Raises `UserError` for an unknown paper or figure."""
    listed = items(paper).set_index("item")
    if item not in listed.index:
        figures = [name for name in listed.index if name.startswith("Figure")]
        raise UserError(f"There is no '{item}' in the figures of {TITLES[paper]}. {nearest(item, figures)}")
    entry = listed.loc[item]
    if entry["needs"] == DRAWING:
        return FigureSlot(None, f"An illustration ({entry['shows']}): nothing in it is measured.")
    if (paper, item) not in FIGURES:
        return FigureSlot(None, "Not a figure: its numbers stand in a table.")
    plan = FIGURES[paper, item]
    try:
        material = gathered(paper, plan.rows_of or item, rows, store)
        with canvas():
            sketch = plan.draw(material)
            caption = f"{TITLES[paper]} {item}: {entry['shows']}. {_setting(material)} {sketch.says}"
            name = f"{paper}-{experiment(item)}"
            svg, png = rendered(sketch.figure, name, caption, sketch.fixed_width)
    except NotDrawnError as gap:
        return FigureSlot(None, str(gap))
    return FigureSlot(Drawing(svg, png, caption, sketch.notes))


def _setting(material: FigureData) -> str:
    """Whose numbers these are."""
    cells = material.rows if not material.rows.empty else material.diagnosed
    tasks, budgets = ", ".join(dict.fromkeys(cells["task"])), ", ".join(ordered_budgets(cells["budget"]))
    model = f"{material.model} (scale=mini, not the paper's model)" if material.mini else material.model
    return f"Ours: {model}, {tasks}, budget {budgets}."
