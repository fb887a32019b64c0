"""Needle recall over document length and needle depth, a map for each policy: KeyDiff Figure 6, CAOTE Figure 2."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from harness.figures.canvas import SMALL, Sheet
from harness.figures.drawing import GapError, Sketch
from harness.figures.estimates import count, estimates
from harness.figures.maps import bar, grid, spaced
from harness.figures.material import Material
from harness.report.heatmap import tick_text

COLUMNS, MAP_WIDTH, TITLE, BELOW = 3, 100, 40, 22  # panels in a row; CSS pixels
ROW, SHORTEST = 19, 84  # CSS pixels of one depth, of a map
AXES = ("axis_length", "axis_depth")


def draw(material: Material, tables: tuple[str, ...] = (), budget: str = "") -> Sketch:
    """Means by length and depth; above each map the mean over all, and the paper's where it prints one."""
    rows = material.scored()
    if any(axis not in rows or rows[axis].isna().any() for axis in AXES):
        raise GapError("Its rows have no length and depth of the needle.")
    lengths, depths = (sorted(rows[axis].unique()) for axis in AXES)
    policies = [name for name in material.policies if name in set(rows["policy"])]
    height = max(SHORTEST, ROW * len(depths))
    lines = -(-len(policies) // COLUMNS)
    each = TITLE + height + BELOW
    cells = estimates(rows, ["policy", *AXES])
    means = estimates(rows, ["policy", "task"])
    printed = _printed(material, tables, budget)
    footer = (
        f"{count(cells['n'])} samples a cell, {count(means['n'])} a map; [ ]: 95 % intervals of a map's mean"
        + "; printed: the paper's mean" * bool(printed)
    )
    sheet = Sheet(lines * each + 62, footer)
    for place, policy in enumerate(policies):
        left, top = 50 + (place % COLUMNS) * (MAP_WIDTH + 18), TITLE + (place // COLUMNS) * each
        axes = sheet.panel(left, top, MAP_WIDTH, height)
        own = cells[cells["policy"] == policy].pivot(index=AXES[1], columns=AXES[0], values="value")
        own = own.reindex(index=depths, columns=lengths)
        texts = [[f"{number:.2f}" for number in line] for line in own.to_numpy()]
        grid(axes, own, Normalize(0, 1), texts if MAP_WIDTH / len(lengths) >= 24 else None)
        _label(axes, lengths, depths, first=place % COLUMNS == 0, last=place >= len(policies) - COLUMNS)
        axes.set_title(
            _title(policy, means[means["policy"] == policy].iloc[0], printed),
            loc="left",
            fontsize=SMALL,
            pad=4,
            linespacing=1.25,
        )
    sheet.text(200, lines * each + 2, "document length (tokens)", ha="center")
    bar(sheet, 140, lines * each + 30, 120, Normalize(0, 1), "needle recall (mean score)")
    says = f"Needle recall by document length and needle depth, {count(means['n'])} samples a policy."
    return Sketch(sheet.figure, says)


def _title(policy: str, mean: pd.Series, printed: dict[str, float]) -> str:
    words = f"{policy}\nmean {mean['value']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}]"
    return words + f"\nprinted {printed[policy]:.3f}" if policy in printed else words


def _printed(material: Material, tables: tuple[str, ...], budget: str) -> dict[str, float]:
    """The paper's averages of the figure's model and budget, by our policies."""
    found = material.printed(tables)
    found = found[(found["budget"] == budget) & found["our_task"].eq("needle/grid")]
    found = found[found["model"] == (found["model"].iloc[0] if len(found) else "")]
    return {str(name): float(value) for name, value in zip(found["policy"], found["value"], strict=True)}


def _label(axes: Axes, lengths: list[object], depths: list[object], first: bool, last: bool) -> None:
    places = spaced(len(lengths), 3)
    axes.set_xticks(places, [tick_text(lengths[place]) for place in places] if last else [])
    shown = spaced(len(depths), 6)
    percent = np.array([float(str(depth)) for depth in depths])
    percent = percent * 100 if percent.max() <= 1 else percent
    axes.set_yticks(shown, [f"{percent[place]:.3g}" for place in shown] if first else [])
    if first:
        axes.set_ylabel("needle depth (%)", labelpad=2)
