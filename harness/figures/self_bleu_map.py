"""Self-BLEU by policy and budget beside that of the full cache: BUZZ Figure 7."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize

from harness.figures.canvas import SMALL, Sheet
from harness.figures.drawing import Sketch
from harness.figures.estimates import count, estimates, spread
from harness.figures.maps import bar, grid
from harness.figures.material import Material
from harness.report.names import ordered_budgets, ordered_policies
from tasks.metrics.self_bleu import self_bleu

METRIC = "self_bleu"
ROW = 30  # CSS pixels of one policy


def draw(material: Material) -> Sketch:
    """Colour: the distance to dense, as in the paper; the cells hold Self-BLEU itself."""
    measured = METRIC in set(material.rows["metric"])
    rows, dense = (_own(each, measured) for each in (material.scored((METRIC,) if measured else ()), _dense(material)))
    notes = [] if measured else ["Self-BLEU is computed from the stored summaries; their task does not score it."]
    found = estimates(rows, ["policy", "budget"])
    policies, budgets = ordered_policies(found["policy"]), ordered_budgets(found["budget"])
    values = found.pivot(index="policy", columns="budget", values="value").reindex(index=policies, columns=budgets)
    full = estimates(dense, ["policy", "task"]) if not dense.empty else pd.DataFrame(columns=["value", "low", "high"])
    reference = float(full["value"].iloc[0]) if len(full) else float("nan")
    distance = (values - reference).abs() if len(full) else values
    largest = float(np.nanmax(distance.to_numpy())) or 1.0
    title = "distance to the full cache" if len(full) else "Self-BLEU (no dense rows)"
    n = count(found["n"])
    height = ROW * len(policies)
    sheet = Sheet(height + 108, f"{n} samples a cell, {spread(found)}; the number is the mean Self-BLEU")
    axes = sheet.panel(96, 28, 292, height)
    texts = [[f"{number:.2f}" for number in line] for line in values.to_numpy()]
    grid(axes, distance, Normalize(0, largest), texts, size=10)
    axes.set_xticks(range(len(budgets)), budgets)
    axes.set_yticks(range(len(policies)), policies)
    axes.set_xlabel("cache budget (% of prompt and generation)")
    if len(full):
        low, high = full["low"].iloc[0], full["high"].iloc[0]
        axes.set_title(f"full cache: {reference:.2f} [{low:.2f}, {high:.2f}]", loc="left", fontsize=SMALL + 1)
    bar(sheet, 96, height + 84, 160, Normalize(0, largest), title)
    return Sketch(sheet.figure, f"Mean Self-BLEU by policy and budget ({n}); darker is nearer to dense.", tuple(notes))


def _dense(material: Material) -> pd.DataFrame:
    return material.references[material.references["policy"] == "dense"]


def _own(rows: pd.DataFrame, measured: bool) -> pd.DataFrame:
    """One row per sample, its value Self-BLEU; that of the stored text where the task has not measured it."""
    if measured or rows.empty:
        return rows[rows["metric"] == METRIC] if measured else rows
    once = rows.drop_duplicates(["cell_id", "sample_id"])
    return once.assign(metric=METRIC, value=[self_bleu(text) for text in once["prediction"]])
