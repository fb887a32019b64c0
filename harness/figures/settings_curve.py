"""Score against a setting of one policy: BUZZ Figure 4, ROUGE against T/w."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.figures.budget_curves import Metric
from harness.figures.canvas import Sheet, hollow, marker
from harness.figures.drawing import Sketch
from harness.figures.estimates import count, estimates
from harness.figures.material import Material
from harness.report.colours import look_of

PANEL = 150  # CSS pixels


def draw(material: Material, panels: Sequence[Metric], policy: str, pattern: str, note: str, axis: str) -> Sketch:
    """``pattern`` finds the setting in a policy's name, ``note`` in the remark of a printed number."""
    rows = material.scored()
    setting = pd.to_numeric(rows["policy"].str.extract(pattern, expand=False))
    there = [each for each in panels if set(each.names) & set(material.rows["metric"])]
    lacking = [each.title for each in panels if each not in there]
    notes = [f"The stored rows have no {', '.join(lacking)}: no panel."] if lacking and there else []
    shown = there or [Metric(str(rows["metric"].iloc[0]))]
    look = look_of(policy)
    n = count(rows.groupby("policy")["sample_id"].nunique())
    beside = [_printed(material, each, note) for each in shown]
    footer = f"{policy}; {n} samples a point, bars: 95 % intervals over documents" + (
        f"; hollow: printed in the paper{', for its own model and data' * material.mini}"
        if any(len(each) for each in beside)
        else ""
    )
    sheet = Sheet(len(shown) * (PANEL + 44) + 4, footer)
    for place, metric in enumerate(shown):
        name = next((name for name in metric.names if name in set(material.rows["metric"])), rows["metric"].iloc[0])
        own = material.rows[material.rows["metric"] == name]
        found = estimates(own.assign(setting=setting.reindex(own.index)), ["setting", "policy"]).sort_values("setting")
        axes = sheet.panel(52, 22 + place * (PANEL + 44), 336, PANEL - 16)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.plot(found["setting"], found["value"], linestyle=look.line, linewidth=1.3, **marker(look))
        axes.errorbar(found["setting"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
        axes.plot(beside[place]["x"], beside[place]["value"], **hollow(look))
        axes.set_title(metric.title, loc="left", pad=5)
        axes.set_xticks(sorted(found["setting"].unique()))
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.set_ylabel("mean score")
        axes.set_xlabel(axis)
        axes.grid(axis="y")
    return Sketch(sheet.figure, f"Mean score of {policy} against {axis} with 95 % intervals ({n}).", tuple(notes))


def _printed(material: Material, metric: Metric, note: str) -> pd.DataFrame:
    printed = material.printed(metric.tables, metric.names)
    x = pd.to_numeric(printed["note"].str.extract(note, expand=False))
    return pd.DataFrame({"x": x, "value": printed["value"]}).dropna()
