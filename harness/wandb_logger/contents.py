"""What the page of a W&B run shows at the end of a sweep, as letters: every number is the report's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import pandas as pd

from harness.report import checked
from harness.report.colours import looks
from harness.report.grid import samples_text
from harness.report.heatmap import AXES
from harness.report.names import budget_unit, metric_title, ordered_policies, parse_budget, policy_labels
from harness.report.quality import quality_figure
from harness.report.rows import valid_rows
from harness.report.summary import summarise
from harness.wandb_logger.maps import has_maps, maps_page
from harness.wandb_logger.page import page

Letter: TypeAlias = dict[str, Any]
RESULTS = (
    "task", "metric", "model", "prompt", "block_size", "dtype", "seed", "policy", "label", "budget", "value", "low",
    "high", "n", "n_clusters", "difference", "difference_low", "difference_high", "n_paired", "slots_requested",
    "slots_kept", "slots_kept_max", "slots_peak", "cell_id",
)  # fmt: skip


def letters(rows: pd.DataFrame) -> Iterator[Letter]:
    """The result table, and for each metric its curves, its figure and, where it has the axes, its heatmaps.

    ``rows``: of one group of cells. Cells that broke a promise are left out, as in every report.
    """
    if rows.empty:
        return
    accepted = checked(rows)
    labels = policy_labels(accepted)
    valid = valid_rows(accepted)
    if valid.empty:
        return
    summary = summarise(valid, labels)
    data = [[_plain(line[name]) for name in RESULTS] for line in summary.to_dict("records")]
    results = {"name": "results", "columns": list(RESULTS), "data": data}
    yield {"what": "table", **results}
    yield {"what": "summary", "values": _numbers(summary)}
    for metric, panel in summary.groupby("metric", sort=False):
        yield from _curves(panel, str(metric))
        scored = valid[valid["metric"] == metric]
        if has_maps(scored):
            yield from _maps(scored.assign(label=scored["cell_id"].map(labels)), str(metric))
    yield {"what": "artifact", **results}  # last, because it is what a silent server holds up


def _numbers(summary: pd.DataFrame) -> dict[str, float]:
    """For the list of runs. Where one policy was asked for, its value also bears the metric's name alone, so that runs
    of a W&B sweep can be compared by it.
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


def _curves(panel: pd.DataFrame, metric: str) -> Iterator[Letter]:
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
    yield {"what": "lines", "name": f"curves/{metric}", "xs": xs, "ys": ys, "keys": keys, "title": title, "xname": unit}
    style = looks(panel["label"])
    if (figure := quality_figure(panel, style, "quality")) is not None:
        yield {"what": "html", "name": f"figures/{metric}", "page": page(f"{title}, 95 % intervals", figure, style)}


def _maps(scored: pd.DataFrame, metric: str) -> Iterator[Letter]:
    """Mean by length and depth of every policy and budget: drawn, and as a table."""
    by_place = scored.groupby(["label", "budget", *AXES], sort=False)["value"].agg(["mean", "count"]).reset_index()
    yield {
        "what": "table",
        "name": f"heatmap_table/{metric}",
        "columns": ["policy", "budget", "length", "depth", metric, "n"],
        "data": [[_plain(value) for value in line] for line in by_place.itertuples(index=False)],
    }
    yield {"what": "html", "name": f"heatmaps/{metric}", "page": maps_page(by_place, metric_title(metric))}


def _plain(value: Any) -> Any:
    """A number or text that JSON knows; None for what is not there."""
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
