"""Score and coverage against the eviction rate, one policy: K-VEC Figure 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from harness.figures.canvas import Sheet, key_of, marker
from harness.figures.drawing import Sketch
from harness.figures.estimates import count, estimates
from harness.figures.material import Material
from harness.report.colours import look_of
from harness.report.names import metric_title, parse_budget


def draw(material: Material) -> Sketch:
    """Both from the same rows: the score, and the share of prompt tokens that some head of some layer holds."""
    rows = material.scored()
    policy = str(rows["policy"].iloc[0])
    look, metric = look_of(policy), metric_title(str(rows["metric"].iloc[0]))
    score, coverage = _by_rate(rows, "value"), _by_rate(rows, "coverage")
    n = count(score["n"])
    sheet = Sheet(270, f"{policy}; {n} samples a point, bars: 95 % intervals over documents")
    other = Line2D([], [], linestyle="--", linewidth=1.4, label="coverage of the prompt", **_open(policy))
    sheet.legend(4, [key_of(f"{metric} (mean)", look), other], 2)
    axes = sheet.panel(52, 30, 336, 190)
    for found, style in ((score, {"linestyle": "-", **marker(look)}), (coverage, {"linestyle": "--", **_open(policy)})):
        axes.plot(found["rate"], found["value"], linewidth=1.3, **style)
        bars = np.vstack([found["value"] - found["low"], found["high"] - found["value"]])
        axes.errorbar(found["rate"], found["value"], yerr=bars, fmt="none", ecolor=look.light, capsize=2)
    axes.set_xticks(score["rate"], [f"{rate:g}%" for rate in score["rate"]])
    axes.set_xlabel("eviction rate (% of the prompt's tokens)")
    axes.set_ylabel("share (0 to 1)")
    axes.set_ylim(0, 1.03)
    axes.grid(axis="y")
    together = np.corrcoef(score["value"], coverage["value"])[0, 1] if _vary(score, coverage) else float("nan")
    fit = f" Pearson's correlation over the {len(score)} budgets: {together:.2f}." if np.isfinite(together) else ""
    return Sketch(sheet.figure, f"Score and coverage of {policy} against the eviction rate ({n}).{fit}")


def _vary(*found: pd.DataFrame) -> bool:
    """Whether there is anything to correlate."""
    return all(len(each) > 2 and each["value"].nunique() > 1 for each in found)


def _open(policy: str) -> dict[str, Any]:
    return {**marker(look_of(policy)), "markerfacecolor": "white"}


def _by_rate(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    found = estimates(rows, ["policy", "budget"], value)
    return found.assign(rate=[100 - parse_budget(text).amount for text in found["budget"]]).sort_values("rate")
