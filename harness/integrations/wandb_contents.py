"""What one W&B run shows: the group of cells that it covers, and tables, curves, figures and heatmaps of their rows.

Every number is the report's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
from markupsafe import Markup, escape

from harness.config.budget import FULL
from harness.config.cell import Cell
from harness.report.heatmap import AXES, VIRIDIS, has_axes, tick_text
from harness.report.labels import (
    NLL,
    budget_unit,
    metric_title,
    ordered_budgets,
    ordered_policies,
    parse_budget,
    policy_labels,
)
from harness.report.looks import Look, contrast, looks
from harness.report.quality_plot import quality_figure, swatch
from harness.report.rows import CONTEXT, checked_rows, valid_rows
from harness.report.summary import summarise
from harness.report.summary_tables import samples_text
from harness.report.svg import colour_rules

# Groups: cells share a run where their scores may be compared, so one model, task and prompt regime.

KEY = (*CONTEXT, "task")  # columns of rows and labels of cells that are equal within a run


@dataclass(frozen=True)
class WandbGroup:
    """The cells of one run. ``labels``: what all of them share, by the names in `KEY`."""

    labels: Mapping[str, Any]
    cells: Sequence[Cell]

    @property
    def name(self) -> str:
        """``testbed · niah · blocked 32``; dtype and seed are in the configuration."""
        labels = self.labels
        block = f" {labels['block_size']}" if labels["block_size"] else ""
        return f"{labels['model']} · {labels['task']} · {labels['prompt']}{block}"

    def config(self) -> dict[str, Any]:
        """The resolved configurations: what all cells share, and by cell what they do not."""
        asked = {cell.id: cell.configuration for cell in self.cells}
        first, *rest = asked.values()
        shared = {name: value for name, value in first.items() if all(one.get(name) == value for one in rest)}
        return {
            "group": dict(self.labels),
            "shared": shared,
            "cells": {
                cell_id: {name: value for name, value in one.items() if name not in shared}
                for cell_id, one in asked.items()
            },
        }

    def rows_of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows of this run's cells."""
        return rows[rows["cell_id"].isin([cell.id for cell in self.cells])]


def groups(cells: Iterable[Cell]) -> list[WandbGroup]:
    """The runs of a sweep, in the order in which their first cells were asked for; equal cells count once."""
    found: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for cell in cells:
        labels = cell.labels()
        found.setdefault(tuple(labels[name] for name in KEY), {})[cell.id] = cell
    return [WandbGroup(dict(zip(KEY, key, strict=True)), tuple(members.values())) for key, members in found.items()]


# Contents.


@dataclass(frozen=True)
class TablePanel:
    """``data``: one list per line, JSON values in the order of ``columns``."""

    columns: Sequence[str]
    data: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class LinesPanel:
    """A chart to hover over. ``xs``, ``ys`` and ``keys``: one item per line."""

    xs: Sequence[Sequence[float]]
    ys: Sequence[Sequence[float]]
    keys: Sequence[str]
    title: str
    xname: str


Panel: TypeAlias = TablePanel | LinesPanel | str  # text: an HTML page


@dataclass(frozen=True)
class RunContents:
    """``summary``: numbers for W&B's list of runs. ``panels``: by the name under which W&B shows them."""

    results: TablePanel
    summary: Mapping[str, float]
    panels: Mapping[str, Panel]


RESULTS = (
    "task", "metric", "model", "prompt", "block_size", "dtype", "seed", "policy", "label", "budget", "value", "low",
    "high", "n", "n_clusters", "difference", "difference_low", "difference_high", "n_paired", "slots_requested",
    "slots_kept", "slots_kept_max", "slots_peak", "cell_id",
)  # fmt: skip


def run_contents(rows: pd.DataFrame) -> RunContents | None:
    """The result table, and for each metric its curves, its figure and, where it has the axes, its heatmaps.

    ``rows``: of one group of cells. Cells that broke a promise are left out, as in every report. None where no row is
    left.
    """
    if rows.empty:
        return None
    accepted = checked_rows(rows)
    labels = policy_labels(accepted)
    valid = valid_rows(accepted)
    if valid.empty:
        return None
    summary = summarise(valid, labels)
    panels: dict[str, Panel] = {}
    for metric, panel in summary.groupby("metric", sort=False):
        panels |= _curves(panel, str(metric))
        scored = valid[valid["metric"] == metric]
        if _has_maps(scored):
            panels |= _maps(scored.assign(label=scored["cell_id"].map(labels)), str(metric))
    data = [[_plain(line[name]) for name in RESULTS] for line in summary.to_dict("records")]
    return RunContents(TablePanel(RESULTS, data), _numbers(summary), panels)


def _numbers(summary: pd.DataFrame) -> dict[str, float]:
    """By ``metric/label/budget``. Where one policy at one budget was asked for, its value also stands under the name of
    the metric alone, so that runs of a W&B sweep can be compared by it.
    """
    values = {
        f"{line['metric']}/{line['label']}/{line['budget']}": float(line["value"])
        for line in summary.to_dict("records")
    }
    for metric, panel in summary.groupby("metric", sort=False):
        asked = panel[~panel["dense"].astype(bool) & ~panel["reference"].astype(bool)]
        if len(asked) == 1:
            values[str(metric)] = float(asked["value"].iloc[0])
    return values


def _curves(panel: pd.DataFrame, metric: str) -> Iterator[tuple[str, Panel]]:
    """Quality against budget: a chart to hover over, and the report's figure with its intervals."""
    sparse = panel[~panel["dense"].astype(bool)]
    if sparse.empty:
        return
    xs, ys, keys = [], [], []
    for label in ordered_policies(sparse["label"]):
        own = sparse[sparse["label"] == label]
        points = sorted(zip((parse_budget(text).amount for text in own["budget"]), own["value"], strict=True))
        xs.append([x for x, _ in points])
        ys.append([float(y) for _, y in points])
        keys.append(label)
    budgets = [x for line in xs for x in line]
    for line in panel[panel["dense"].astype(bool)].to_dict("records"):
        xs.append([min(budgets), max(budgets)])
        ys.append([float(line["value"])] * 2)
        keys.append(str(line["label"]))
    title = f"{metric_title(metric)}, {samples_text(panel)}"
    unit = budget_unit(sparse["budget"]) or "budget"
    yield f"curves/{metric}", LinesPanel(xs, ys, keys, title, unit)
    style = looks(panel["label"])
    if (figure := quality_figure(panel, style, "quality")) is not None:
        yield f"figures/{metric}", _page(f"{title}, 95 % intervals", figure, style)


def _maps(scored: pd.DataFrame, metric: str) -> Iterator[tuple[str, Panel]]:
    """Mean by length and depth of every policy and budget: drawn, and as a table."""
    by_place = scored.groupby(["label", "budget", *AXES], sort=False)["value"].agg(["mean", "count"]).reset_index()
    data = [[_plain(value) for value in line] for line in by_place.itertuples(index=False)]
    yield f"heatmap_table/{metric}", TablePanel(("policy", "budget", "length", "depth", metric, "n"), data)
    yield f"heatmaps/{metric}", _maps_page(by_place, metric_title(metric))


def _plain(value: Any) -> Any:
    """A number or text that JSON knows; None for what is not there."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


# Pages: heatmaps are coloured tables, which cost nothing to draw, so that there may be hundreds of them.


def _has_maps(rows: pd.DataFrame) -> bool:
    """Whether the rows of one metric have a length and a depth each, and scores on the colour scale, 0 to 1."""
    return has_axes(rows) and rows["metric"].iloc[0] != NLL and bool(rows["value"].between(0, 1).all())


def _maps_page(by_place: pd.DataFrame, metric: str) -> str:
    """A map for every policy and budget. ``by_place``: label, budget, the axes, ``mean`` and ``count``."""
    lengths, depths = (sorted(by_place[axis].unique()) for axis in AXES)
    maps = [
        _map(part, lengths, depths, label if budget == FULL.label else f"{label}, budget {budget}")
        for label in ordered_policies(by_place["label"])
        for budget in ordered_budgets(by_place["budget"])
        if not (part := by_place[(by_place["label"] == label) & (by_place["budget"] == budget)]).empty
    ]
    return _page(f"{metric} (mean, n) by depth (rows) and length in tokens (columns)", Markup("").join(maps), {})


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
    colour = "#" + "".join(f"{round(channel * 255):02x}" for channel in VIRIDIS(mean)[:3])
    ink = max(("#ffffff", "#111111"), key=lambda candidate: contrast(candidate, colour))
    return Markup('<td style="background:{};color:{}">{:.2f}<br><small>n={}</small></td>').format(colour, ink, mean, n)


_LIGHT = "--ink:#1b1f24;--muted:#5d636b;--rule:#d8dce1;--card:#ffffff;"
_DARK = "--ink:#e8eaed;--muted:#a9b0b9;--rule:#3c434b;--card:#1b1f24;"
_STYLE = (
    "body{margin:8px;background:var(--card);color:var(--ink);font:13px sans-serif}h1{font-size:13px;margin:0 0 6px}"
    "table{display:inline-table;border-collapse:collapse;margin:0 18px 12px 0}"
    "caption{text-align:left;padding:2px 0;white-space:nowrap}"
    "th,td{padding:3px 7px;text-align:center;font-weight:400}span{margin-right:12px;white-space:nowrap}"
)


def _page(title: str, body: Markup, looks: Mapping[str, Look]) -> str:
    """``body`` under a heading, with the key to the policies in ``looks`` where there are any. Its colours follow the
    reader's light or dark scheme.
    """
    light, dark = colour_rules(looks.values())
    keys = Markup("").join(
        Markup("<span>{} {}</span>").format(swatch(label, look, f"key{number}"), label)
        for number, (label, look) in enumerate(looks.items())
    )
    style = f":root{{{_LIGHT}{light}}}@media(prefers-color-scheme:dark){{:root{{{_DARK}{dark}}}}}{_STYLE}"
    return f"<!doctype html><meta charset=utf-8><style>{style}</style><h1>{escape(title)}</h1>{body}<p>{keys}</p>"
