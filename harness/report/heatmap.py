"""Figure: accuracy over context length and needle depth, one small heatmap per policy and budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from harness.report.labels import NLL, context_title, metric_title, ordered_budgets, ordered_policies
from harness.report.ledger_table import struck_places
from harness.report.looks import contrast
from harness.report.summary import PANEL
from harness.report.svg import CARD, MUTED, inline_svg, matplotlib_style, new_figure

# Viridis (van der Walt and Smith 2015): perceptually uniform, readable with colour-vision deficiencies.
VIRIDIS = colormaps["viridis"]
ROW_HEIGHT = 30  # CSS pixels per depth
NARROWEST, WIDEST = 38, 72  # CSS pixels per length
PAGE_WIDTH = 880  # CSS pixels that the maps of one policy share on a desktop
MARGINS = (46, 4, 4, 36)  # CSS pixels for labels: left, right, top, bottom
AXES = ("axis_length", "axis_depth")


def has_axes(rows: pd.DataFrame) -> bool:
    """Whether the rows have what the heatmap needs: a length and a depth on every row."""
    return all(name in rows.columns and rows[name].notna().all() for name in AXES)


def column_width(lengths: int, maps: int) -> float:
    """CSS pixels per length, so that ``maps`` heatmaps side by side fill a desktop page where they can."""
    return min(WIDEST, max(NARROWEST, (PAGE_WIDTH / max(maps, 1) - MARGINS[0] - MARGINS[1] - 8) / lengths))


def heatmap(
    rows: pd.DataFrame, lengths: list[object], depths: list[object], title: str, name: str, column: float
) -> Markup:
    """Mean value and number of samples per depth (y) and length (x) for the rows of one cell and metric.

    ``column``: CSS pixels per length.
    """
    cells = {key: (float(part.mean()), len(part)) for key, part in rows.groupby([*AXES])["value"]}
    left, right, top, bottom = MARGINS
    width, height = left + column * len(lengths) + right, bottom + ROW_HEIGHT * len(depths) + top
    with matplotlib_style():
        drawn = new_figure(width, height)
        axes = drawn.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
        for x, length in enumerate(lengths):
            for y, depth in enumerate(depths):
                mean, n = cells.get((length, depth), (np.nan, 0))
                _draw_cell(axes, x, y, mean, n)
        axes.set(xlim=(0, len(lengths)), ylim=(len(depths), 0))
        axes.set_xticks(np.arange(len(lengths)) + 0.5, [tick_text(length) for length in lengths])
        axes.set_yticks(np.arange(len(depths)) + 0.5, _depth_texts(depths))
        axes.tick_params(length=0, pad=3)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("length (tokens)", fontsize=10, labelpad=2)
        axes.set_ylabel("depth (%)", fontsize=10, labelpad=2)
    worst = min(cells, key=lambda place: cells[place][0])
    text = (
        f"{title}: mean {rows['value'].mean():.2f} over {len(rows)} samples; lowest {cells[worst][0]:.2f} "
        f"at length {tick_text(worst[0])} and depth {_depth_texts([worst[1], *depths])[0]} %"
    )
    return inline_svg(drawn, name, text)


def colour_stops() -> str:
    """The colour scale as the stops of a CSS gradient."""
    return ", ".join(_hex(VIRIDIS(share)) for share in np.linspace(0, 1, 9))


def _draw_cell(axes: Axes, x: int, y: int, mean: float, n: int) -> None:
    if n == 0:
        axes.text(x + 0.5, y + 0.5, "–", ha="center", va="center", color=MUTED, fontsize=10)
        return
    colour = _hex(VIRIDIS(mean))
    ink = max(("#ffffff", "#111111"), key=lambda candidate: contrast(candidate, colour))
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=CARD, linewidth=1.5))
    axes.text(x + 0.5, y + 0.36, f"{mean:.2f}", ha="center", va="center", color=ink, fontsize=11)
    axes.text(x + 0.5, y + 0.77, f"n={n}", ha="center", va="center", color=ink, fontsize=9)


def _hex(rgba: tuple[float, float, float, float]) -> str:
    return "#" + "".join(f"{round(channel * 255):02x}" for channel in rgba[:3])


def tick_text(value: object) -> str:
    """A coordinate as text: ``1024``, ``0.5``, or words as they are."""
    try:
        return f"{float(str(value)):.10g}"
    except ValueError:
        return str(value)


def _depth_texts(depths: list[object]) -> list[str]:
    """Depths in percent, whether the task counts them from 0 to 1 or from 0 to 100."""
    try:
        numbers = np.array([float(str(depth)) for depth in depths])
    except ValueError:
        return [str(depth) for depth in depths]
    return [f"{number:.3g}" for number in (numbers * 100 if numbers.max() <= 1 else numbers)]


# Small multiples: the heatmaps of one task, a row per policy and a column per budget.


MapKey: TypeAlias = tuple[bool, str, str]  # whether dense, label, budget


@dataclass(frozen=True)
class HeatmapGrid:
    """Heatmaps of one task and metric in one context; a text instead of a map says why there is none."""

    context: str
    task: str
    metric: str
    samples: int  # distinct ones
    budgets: list[str]
    dense: list[Markup | str]
    rows: list[tuple[str, list[Markup | str]]]


def heatmap_grids(
    valid: pd.DataFrame,
    summary: pd.DataFrame,
    ledger: pd.DataFrame,
    labels: Mapping[str, str],
    shown: tuple[str, ...],
) -> Iterator[HeatmapGrid]:
    """One set for every task and metric whose samples have length and depth and whose scores lie in 0 to 1."""
    parts = dict(iter(valid.groupby(list(PANEL), sort=False)))
    for number, (key, _) in enumerate(summary.groupby(list(PANEL), sort=False)):
        context, part = dict(zip(PANEL, key, strict=True)), parts[key]
        if context["metric"] == NLL or not has_axes(part) or not part["value"].between(0, 1).all():
            continue
        maps: dict[MapKey, Markup | str] = dict.fromkeys(struck_places(ledger, context), "invalid")
        maps |= _draw_maps(part.assign(label=part["cell_id"].map(labels)), f"heat{number}")
        budgets = ordered_budgets(budget for dense, _, budget in maps if not dense)
        yield HeatmapGrid(
            context=context_title(context, shown),
            task=str(context["task"]),
            metric=metric_title(str(context["metric"])),
            samples=part["sample_id"].nunique(),
            budgets=budgets,
            dense=[drawn for (dense, _, _), drawn in maps.items() if dense],
            rows=[
                (label, [maps.get((False, label, budget), "not run") for budget in budgets])
                for label in ordered_policies(label for dense, label, _ in maps if not dense)
            ],
        )


def _draw_maps(part: pd.DataFrame, name: str) -> dict[MapKey, Markup]:
    """A heatmap per cell, all over the same lengths and depths so that they can be compared."""
    lengths, depths = (sorted(part[axis].unique()) for axis in AXES)
    column = column_width(len(lengths), part.loc[~part["dense"], "budget"].nunique())
    figures = {}
    for number, (key, cell) in enumerate(part.groupby(["dense", "label", "budget"], sort=False)):
        dense, label, budget = bool(key[0]), str(key[1]), str(key[2])
        title = label if dense else f"{label}, budget {budget}"
        figures[dense, label, budget] = heatmap(cell, lengths, depths, title, f"{name}-{number}", column)
    return figures
