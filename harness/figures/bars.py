"""Bars of policies side by side, in groups: BUZZ Figures 6 (where the answer stands) and 8b (local maxima or not)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from harness.figures.canvas import INK, MUTED, Sheet, legend_height
from harness.figures.drawing import Sketch
from harness.figures.estimates import count, estimates
from harness.figures.material import Material
from harness.report.colours import look_of, looks
from harness.report.names import metric_title, ordered_budgets, ordered_policies

PANEL = 190  # CSS pixels
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")  # where two policies share a colour
AVERAGE = "average"


def draw(material: Material, group: str, axis: str, metric: tuple[str, ...] = (), averaged: bool = False) -> Sketch:
    """``group``: the column that makes the groups; ``averaged`` adds one over all of them.

    Where the rows have no such column there is the average alone, and a note.
    """
    rows = material.scored(metric if set(metric) & set(material.rows["metric"]) else ())
    has = group in rows and rows[group].notna().all()
    notes = [] if has else [f"The stored rows do not tell {axis} apart: only the mean over all samples."]
    parts = [rows.assign(group=rows[group].map(str))] if has else []
    if averaged or not has:
        parts.append(rows.assign(group=AVERAGE))
    found = estimates(pd.concat(parts), ["group", "policy"])
    groups = _ordered(list(found["group"].unique()), group)
    policies = ordered_policies(found["policy"])
    style, hatches = looks(policies), _hatches(policies)
    keys = [Patch(facecolor=style[name].light, edgecolor="white", hatch=hatches[name], label=name) for name in policies]
    top = legend_height(len(keys), 3) + 6
    n = count(found["n"])
    sheet = Sheet(top + PANEL + 44, f"{n} samples a bar; whiskers: 95 % intervals over documents; dashed: dense")
    sheet.legend(4, keys, 3)
    axes = sheet.panel(52, top + 8, 336, PANEL)
    width = 0.84 / len(policies)
    for place, name in enumerate(policies):
        own = found[found["policy"] == name].set_index("group").reindex(groups)
        x = np.arange(len(groups)) + width * (place - (len(policies) - 1) / 2)
        axes.bar(x, own["value"], width, color=style[name].light, edgecolor="white", hatch=hatches[name], linewidth=0.5)
        bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
        axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
    dense = material.references[
        (material.references["policy"] == "dense") & (material.references["metric"] == rows["metric"].iloc[0])
    ]
    for line in estimates(dense, ["policy", "task"]).to_dict("records")[:1]:
        axes.axhline(line["value"], color=MUTED, linewidth=1, linestyle=(0, (6, 3)))
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlabel(axis)
    axes.set_ylabel(f"{metric_title(str(rows['metric'].iloc[0]))} (mean)")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    says = f"Mean score by {axis} with 95 % intervals ({n})."
    return Sketch(sheet.figure, says, tuple(notes))


def _ordered(groups: list[str], column: str) -> list[str]:
    plain = [name for name in groups if name != AVERAGE]
    ordered = ordered_budgets(plain) if column == "budget" else sorted(plain, key=float)
    return ordered + [name for name in groups if name == AVERAGE]


def _hatches(policies: list[str]) -> dict[str, str]:
    """Nothing is told by colour alone: the second policy of a colour is hatched, the third dotted."""
    seen: dict[str, int] = {}
    out = {}
    for name in policies:
        colour = look_of(name).light
        out[name] = HATCHES[seen.get(colour, 0) % len(HATCHES)]
        seen[colour] = seen.get(colour, 0) + 1
    return out
