"""Every figure of the five papers: which kind of drawing it is, and which stored diagnostics it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness.figures import (
    answers,
    bars,
    budget_curves,
    correlations,
    coverage_curve,
    head_values,
    kept,
    key_clouds,
    layer_curves,
    layer_head_maps,
    lengths,
    needle_maps,
    self_bleu_map,
    settings_curve,
    token_maps,
    vector_histograms,
    volumes,
    window_scores,
)
from harness.figures.budget_curves import Metric
from harness.figures.drawing import Sketch
from harness.figures.material import Material


@dataclass(frozen=True)
class Inside:
    """Diagnostics that are stored for a figure, and of how many samples at each scale."""

    diagnostics: tuple[str, ...] = ()
    full: int = 1
    mini: int = 1
    of_dense: bool = False  # of the dense run, alike for all policies: the first cell is enough

    def samples(self, scale: str) -> int:
        """How many samples of the task are looked into at a scale."""
        return self.full if scale == "full" else self.mini


@dataclass(frozen=True)
class Plan:
    """How one figure comes about. ``rows_of``: the item whose cells it is drawn from, where it has none of its own."""

    draw: Callable[[Material], Sketch]
    inside: Inside = Inside()
    rows_of: str = ""


CLOUD = Inside(("key_points",))
VECTORS = Inside(("key_points", "query_points"))
HEADS = Inside(("key_query",), full=5, mini=5)


def _cloud(layer: int, head: int) -> Plan:
    return Plan(partial(key_clouds.draw, layer=layer, head=head), CLOUD)


def _rouge(*tables: str) -> tuple[Metric, ...]:
    return (
        Metric("ROUGE-1", ("rouge_1",), tables),
        Metric("ROUGE-2", ("rouge_2",), tables),
        Metric("ROUGE-L", ("rouge_l",), tables),
    )


def _answers(bert: str, rouge: str, judge: str) -> Plan:
    panels = (
        Metric("BERTScore F1", ("bert_f1",), (bert,)),
        Metric("ROUGE-L", ("rougeL",), (rouge,)),
        Metric("judge (mean, 1 to 5)", ("judge",), (judge,)),
    )
    return Plan(partial(budget_curves.draw, panels=panels))


def _curves(*panels: Metric) -> Plan:
    return Plan(partial(budget_curves.draw, panels=panels))


FIGURES: dict[tuple[str, str], Plan] = {
    ("keydiff", "Figure 2"): Plan(token_maps.cosines_and_attention, Inside(("first_tokens",), of_dense=True)),
    ("keydiff", "Figure 4"): _cloud(5, 3),
    ("keydiff", "Figure 5"): Plan(volumes.draw, Inside(("log_det",), full=100, mini=10)),
    ("keydiff", "Figure 6"): Plan(needle_maps.draw),
    ("keydiff", "Figure 7"): _cloud(27, 4),
    ("keydiff", "Figure 8"): _cloud(20, 0),
    ("keydiff", "Figure 9"): _cloud(8, 1),
    ("keydiff", "Figure 10"): Plan(partial(lengths.draw, tables=("Table 5",)), rows_of="Table 8"),
    ("keydiff", "Figure 11"): Plan(partial(vector_histograms.draw, what="angle"), VECTORS),
    ("keydiff", "Figure 12"): Plan(
        partial(head_values.draw, column="cosine_of_means", title="cosine of mean key and mean query"), HEADS
    ),
    ("keydiff", "Figure 13"): Plan(partial(vector_histograms.draw, what="norm"), VECTORS),
    ("keydiff", "Figure 14"): Plan(
        partial(head_values.draw, column="cosine_of_distinct", title="cosine of distinct keys and mean query"), HEADS
    ),
    ("caote", "Figure 2"): Plan(partial(needle_maps.draw, tables=("Table 5",), budget="6144")),
    ("caote", "Figure 3"): Plan(layer_curves.draw, Inside(("output_error",), full=5, mini=5)),
    ("buzz", "Figure 4"): Plan(
        partial(
            settings_curve.draw,
            panels=_rouge("Table A"),
            policy="buzz",
            pattern=r"ratio([\d.]+)",
            note=r"T_over_w=([\d.]+)",
            axis="threshold over window, T/w",
        )
    ),
    ("buzz", "Figure 5"): _curves(*_rouge("Table B")),
    ("buzz", "Figure 6"): Plan(
        partial(
            bars.draw,
            group="axis_gold_at",
            axis="place of the document with the answer",
            metric=("exact_match",),
            averaged=True,
        )
    ),
    ("buzz", "Figure 7"): Plan(self_bleu_map.draw),
    ("buzz", "Figure 8a"): _curves(*_rouge()),
    ("buzz", "Figure 8b"): Plan(
        partial(bars.draw, group="budget", axis="cache budget (% of prompt and generation)", metric=("rouge_l",))
    ),
    ("buzz", "Figure 9"): Plan(partial(answers.draw, tables=("Figure 9",))),
    ("hashevict", "Figure 2"): _answers("Table 4", "Table 5", "Table 6"),
    ("hashevict", "Figure 3"): _answers("Table 7", "Table 8", "Table 9"),
    ("hashevict", "Figure 4"): _curves(Metric("accuracy", ("accuracy",))),
    ("hashevict", "Figure 5"): _curves(Metric("string match", ("string_match",))),
    ("hashevict", "Figure 6"): _curves(Metric("ROUGE-L", ("rougeL", "rouge_l"), ("Table 1",))),
    ("hashevict", "Figure 7"): Plan(
        partial(token_maps.attention_and_norms, layer=8, heads=(0, 8, 16, 24, 31)),
        Inside(("first_tokens", "key_points")),
    ),
    ("hashevict", "Figure 8"): Plan(layer_head_maps.draw, Inside(("ranking_loss",), full=10, mini=5)),
    ("hashevict", "Figure 9"): Plan(
        partial(correlations.draw, tables=("Table 11",)), Inside(("lsh",), full=50, mini=5)
    ),
    ("kvec", "Figure 1"): Plan(coverage_curve.draw),
    ("kvec", "Figure 2"): Plan(
        partial(window_scores.draw, layer=0, head=0, policy="snapkv/kvec"), Inside(("window_attention",), of_dense=True)
    ),
    ("kvec", "Figure 3"): Plan(partial(kept.text, policy="snapkv/kvec"), Inside(("kept",))),
    ("kvec", "Figure 4"): Plan(kept.maps, Inside(("kept",))),
}

# Tables that print numbers from inside the model; reports read the same stored diagnostics.
TABLES: dict[tuple[str, str], Inside] = {
    ("caote", "Table 8"): Inside(("score_ranks",), full=1, mini=3),
    ("hashevict", "Table 3"): Inside(("attention_loss",), full=10, mini=3),
}


def inside_of(paper: str, item: str) -> Inside:
    """The diagnostics that a figure or table takes; none for most."""
    return FIGURES[paper, item].inside if (paper, item) in FIGURES else TABLES[paper, item]
