"""The summary as tables, policies down and every number as text: in the terminal, and as a page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
from rich.markup import escape
from rich.table import Table

from harness.console import console
from harness.report.labels import NLL, budget_unit, context_title, metric_title, ordered_budgets, ordered_policies
from harness.report.ledger_table import struck_places
from harness.report.summary import PANEL, Line, difference_text, interval_text, value_text, verdict

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


@dataclass(frozen=True)
class SummaryCell:
    """One cell of a summary table. ``state``: ``ok``, ``invalid`` (struck out) or ``missing`` (not run)."""

    state: str
    value: str = ""
    interval: str = ""
    difference: str = ""
    verdict: str = ""  # against dense: better, worse, or empty
    rank: str = ""  # best, second, or empty
    n: str = ""  # only where it is not the table's own
    cell: str = ""  # the id of its cell, whose samples the page lists


@dataclass(frozen=True)
class SummaryGrid:
    """One table: a task and metric in one context."""

    context: str
    task: str
    metric: str
    lower_is_better: bool
    samples: str
    uneven: bool  # whether cells were measured on different numbers of samples
    compared: bool  # whether there is a dense cell to compare with
    struck: bool  # whether a cell is struck out
    budgets: list[str]
    unit: str  # of the budgets
    dense: list[SummaryCell]
    rows: list[tuple[str, list[SummaryCell]]]
    panel: pd.DataFrame  # the lines of the summary behind it


def summary_grids(summary: pd.DataFrame, ledger: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[SummaryGrid]:
    """Every table of the summary, in its order; cells that are struck out stay in it."""
    for key, panel in summary.groupby(list(PANEL), sort=False):
        context = dict(zip(PANEL, key, strict=True))
        yield _summary_grid(panel, struck_places(ledger, context), context, context_title(context, shown))


def _summary_grid(
    panel: pd.DataFrame, struck: set[tuple[bool, str, str]], context: Mapping[str, object], title: str
) -> SummaryGrid:
    sparse = panel[~panel["dense"]]
    usual = int(panel["n"].mode().iloc[-1])
    cells = {(line["label"], line["budget"]): _summary_cell(line, usual) for line in sparse.to_dict("records")}
    cells |= {(label, budget): SummaryCell("invalid") for dense, label, budget in struck if not dense}
    dense = [_summary_cell(line, usual) for line in panel[panel["dense"]].to_dict("records")]
    budgets = ordered_budgets(budget for _, budget in cells)
    metric = str(context["metric"])
    return SummaryGrid(
        context=title,
        task=str(context["task"]),
        metric=metric_title(metric),
        lower_is_better=metric == NLL,
        samples=samples_text(panel),
        uneven=panel["n"].nunique() > 1,
        compared=bool(dense) and not sparse.empty,
        struck=bool(struck),
        budgets=budgets,
        unit=budget_unit(budgets),
        dense=dense + [SummaryCell("invalid") for is_dense, _, _ in struck if is_dense],
        rows=[
            (label, [cells.get((label, budget), SummaryCell("missing")) for budget in budgets])
            for label in ordered_policies(label for label, _ in cells)
        ],
        panel=panel,
    )


def _summary_cell(line: Line, usual: int) -> SummaryCell:
    return SummaryCell(
        state="ok",
        value=value_text(line),
        interval=interval_text(line),
        difference=difference_text(line),
        verdict=verdict(line),
        rank=str(line["rank"]),
        n="" if line["n"] == usual else f"n = {line['n']}",
        cell=str(line["cell_id"]),
    )


def samples_text(panel: pd.DataFrame) -> str:
    """``40 samples from 8 documents`` for the cells of a panel; ranges where cells differ."""
    samples, clusters = _range_text(panel["n"]), _range_text(panel["n_clusters"])
    if samples == clusters:
        return f"{samples} independent samples" if samples != "1" else "1 sample"
    return f"{samples} samples from {clusters} document{'s' if clusters != '1' else ''}"


def _range_text(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
