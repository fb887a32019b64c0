"""Heatmaps of length and depth as coloured tables: no drawing, so hundreds of them cost nothing."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from harness.report.colours import contrast
from harness.report.heatmap import AXES, COLOURS, has_axes, tick_text
from harness.report.names import NLL, ordered_budgets, ordered_policies
from harness.settings.budget import FULL
from harness.wandb_logger.page import page


def has_maps(rows: pd.DataFrame) -> bool:
    """Whether the rows of one metric have a length and a depth each, and scores on the colour scale, 0 to 1."""
    return has_axes(rows) and rows["metric"].iloc[0] != NLL and bool(rows["value"].between(0, 1).all())


def maps_page(by_place: pd.DataFrame, metric: str) -> str:
    """A map for every policy and budget. ``by_place``: label, budget, the axes, ``mean`` and ``count``."""
    lengths, depths = (sorted(by_place[axis].unique()) for axis in AXES)
    maps = [
        _map(part, lengths, depths, label if budget == FULL.label else f"{label}, budget {budget}")
        for label in ordered_policies(by_place["label"])
        for budget in ordered_budgets(by_place["budget"])
        if not (part := by_place[(by_place["label"] == label) & (by_place["budget"] == budget)]).empty
    ]
    return page(f"{metric} (mean, n) by depth (rows) and length in tokens (columns)", Markup("").join(maps), {})


def _map(part: pd.DataFrame, lengths: list[object], depths: list[object], title: str) -> Markup:
    found = {(row[AXES[0]], row[AXES[1]]): (float(row["mean"]), int(row["count"])) for row in part.to_dict("records")}
    head = Markup("").join(Markup("<th>{}</th>").format(tick_text(length)) for length in lengths)
    lines = Markup("").join(
        Markup("<tr><th>{}</th>{}</tr>").format(
            tick_text(depth), Markup("").join(_place(*found.get((length, depth), (0.0, 0))) for length in lengths)
        )
        for depth in depths
    )
    return Markup("<table><caption>{}</caption><tr><td></td>{}</tr>{}</table>").format(title, head, lines)


def _place(mean: float, n: int) -> Markup:
    if n == 0:
        return Markup("<td>–</td>")
    colour = "#" + "".join(f"{round(channel * 255):02x}" for channel in COLOURS(mean)[:3])
    ink = max(("#ffffff", "#111111"), key=lambda candidate: contrast(candidate, colour))
    return Markup('<td style="background:{};color:{}">{:.2f}<br><small>n={}</small></td>').format(colour, ink, mean, n)
