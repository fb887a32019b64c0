"""Error of the attention output by layer, base policies solid, with CAOTE dashed: CAOTE Figure 3."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from harness.figures.canvas import Sheet, distinct, key_of, legend_height, marker
from harness.figures.drawing import Sketch
from harness.figures.estimates import count
from harness.figures.material import Material
from harness.report.names import ordered_policies
from harness.statistics.intervals import mean_interval

PANEL = 160  # CSS pixels
PANELS = {
    "dense run": "against the dense run (errors of the layers below included)",
    "own states": "against the run's own states (this layer's eviction alone)",
}


def draw(material: Material) -> Sketch:
    """Two panels, because the paper does not say on which states its dense output is computed."""
    frame = material.internals("output_error")
    policies = ordered_policies(frame["policy"])
    style = distinct(policies)
    keys = [key_of(name, style[name]) for name in policies]
    top = legend_height(len(keys), 2) + 6
    found = by_layer(frame)
    n = count(found["n"])
    sheet = Sheet(top + 2 * (PANEL + 46), f"{n} prompts, all passes and heads; bars: 95 % intervals over prompts")
    sheet.legend(4, keys, 2)
    for place, (against, title) in enumerate(PANELS.items()):
        axes = sheet.panel(56, top + 20 + place * (PANEL + 46), 332, PANEL - 18)
        for number, name in enumerate(policies):
            own = found[(found["policy"] == name) & (found["against"] == against)]
            x = own["layer"] + 0.05 * (number - (len(policies) - 1) / 2)
            bars = np.vstack([own["value"] - own["low"], own["high"] - own["value"]])
            axes.plot(x, own["value"], linestyle=style[name].line, linewidth=1.3, **marker(style[name], 5))
            axes.errorbar(x, own["value"], yerr=bars, fmt="none", ecolor=style[name].light, elinewidth=0.8, capsize=1.5)
        axes.set_title(title, loc="left", fontsize=9, pad=4)
        axes.set_ylabel("normalised MSE")
        axes.set_xlabel("layer")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
    return Sketch(
        sheet.figure, f"Squared error of attention outputs, relative to the dense output's norm ({n} prompts)."
    )


def by_layer(frame: pd.DataFrame) -> pd.DataFrame:
    """Sums over passes and heads divided by sums, sample by sample; then mean and interval over samples."""
    by = ["policy", "against", "layer"]
    sums = frame.groupby([*by, "sample_id"])[["squared_error", "squared_norm"]].sum()
    ratio = (sums["squared_error"] / sums["squared_norm"]).rename("error").reset_index()
    lines = []
    for key, part in ratio.groupby(by, sort=True):
        found = mean_interval(part["error"].to_numpy(), part["sample_id"].to_numpy())
        lines.append((*key, found.mean, found.low, found.high, found.n))
    return pd.DataFrame(lines, columns=[*by, "value", "low", "high", "n"])
