"""The result table in the terminal: one line per cell and metric, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from rich.markup import escape
from rich.table import Table

from harness.console import console
from harness.report.summary import difference_text, interval_text, value_text

DROPPED = ("peak", "slots kept", "against dense")  # columns of the result table, in the order in which they go


def show_summary(summary: pd.DataFrame) -> None:
    """One table for each model, task, metric and regime, a line per cell, means with 95 % intervals; baselines dim.

    A narrow console gets fewer columns: they go in the order of `DROPPED`, until the rest fits or none is left to drop.
    """
    several = summary["model"].nunique() > 1
    for panel, lines in summary.groupby(["model", "task", "metric", "prompt"], sort=False):
        model, task, metric, prompt = map(str, panel)
        shown = "perplexity" if metric == "nll" else metric
        columns = fitting_columns(_columns(lines, shown), console.width)
        table = Table(
            title=f"{task}{f' on {model}' if several else ''}: {shown}, prompt {prompt}, 95 % intervals",
            title_justify="left",
        )
        for number, heading in enumerate(columns):
            table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=number > 0, overflow="fold")
        dim = lines["dense"].astype(bool) | lines["reference"].astype(bool)
        last_of_budget = ~lines["budget"].duplicated(keep="last")
        for texts, is_dim, last in zip(zip(*columns.values(), strict=True), dim, last_of_budget, strict=True):
            table.add_row(*map(escape, texts), style="dim" if is_dim else "", end_section=bool(last))
        console.print(table)


def fitting_columns(columns: Mapping[str, list[str]], width: int) -> dict[str, list[str]]:
    """Headings and texts without the first of `DROPPED`, as many as must go for a table of ``width`` characters."""
    kept = dict(columns)
    for name in DROPPED:
        if 1 + sum(3 + max(map(len, [heading, *texts])) for heading, texts in kept.items()) <= width:
            break
        kept.pop(name)
    return kept


def _columns(lines: pd.DataFrame, shown: str) -> dict[str, list[str]]:
    records = lines.to_dict("records")
    return {
        "policy": [str(line["label"]) for line in records],
        "budget": [str(line["budget"]) for line in records],
        shown: [value_text(line) for line in records],
        "interval": [interval_text(line) for line in records],
        "against dense": [difference_text(line) for line in records],
        "samples": [str(line["n"]) for line in records],
        "slots kept": [f"{line['slots_kept_max']:.0f}" for line in records],
        "peak": [f"{line['slots_peak']:.0f}" for line in records],
    }
