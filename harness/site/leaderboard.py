"""The leaderboard: every cell and metric with its score, its distance to dense, and its place among its rivals."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.report.colours import REFERENCES
from harness.report.names import NLL, metric_title, ordered_budgets, ordered_policies
from harness.report.rows import CONTEXT
from harness.report.summary import difference_text, interval_text, value_text, verdict
from harness.site.material import Material, regime
from harness.site.tables import Column, Entry, Line, Table, filters_of, number, without_common

RIVALS = (*CONTEXT, "task", "metric", "budget")  # places are given among cells that differ in their policy alone
COLUMNS = (
    Column("policy"),
    Column("budget"),
    Column("task"),
    Column("score", "mean, 95 % interval", number=True),
    Column("place", "same task and budget", number=True),
    Column("to dense", "paired, 95 % interval", number=True),
    Column("kept", "slots, mean", number=True),
    Column("samples", number=True),
    Column("prompt"),
    Column("model"),
    Column("papers"),
)
TITLES = {"paper": "paper", "task": "task", "budget": "budget", "regime": "prompt regime", "model": "model"}


def leaderboard(material: Material) -> Table:
    """One line per cell and metric, within each task and budget the best first; dense and reference lines unplaced."""
    placed = with_places(material.summary)
    cells = material.cells
    lines = [_line(each, material, cells[str(each["cell_id"])]) for each in _ordered(placed).to_dict("records")]
    orders = {"budget": ordered_budgets(placed["budget"]), "task": sorted(set(placed["task"]))}
    table = Table("leaderboard", "lines", COLUMNS, lines, filters_of(lines, TITLES, orders))
    return without_common(table, ("prompt", "model", "papers"))


def with_places(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary with ``place`` and ``rivals`` (how many are placed): 1 is the best, equals share the better place.

    Rivals are the cells of the same model, regime, block size, dtype, seed, task, metric and budget. Dense and the
    reference lines have no place (0), and neither has a cell without rivals.
    """
    placed = summary.assign(place=0, rivals=0)
    runs = ~summary["dense"].astype(bool) & ~summary["reference"].astype(bool)
    for _, part in summary[runs].groupby(list(RIVALS), sort=False):
        if len(part) > 1:
            ranks = part["value"].round(12).rank(method="min", ascending=bool((part["metric"] == NLL).all()))
            placed.loc[part.index, "place"] = ranks.astype(int)
            placed.loc[part.index, "rivals"] = len(part)
    return placed


def _ordered(placed: pd.DataFrame) -> pd.DataFrame:
    """Within a task and budget: dense, the placed by place, then the others."""
    budgets, policies = ordered_budgets(placed["budget"]), ordered_policies(placed["label"])
    keys = placed[[*CONTEXT, "task", "metric"]].assign(
        sparse=~placed["dense"].astype(bool),
        budget=placed["budget"].map(budgets.index),
        unplaced=placed["place"] == 0,
        place=placed["place"],
        policy=placed["label"].map(policies.index),
    )
    return placed.loc[keys.sort_values(list(keys.columns), kind="stable").index]


def _line(line: dict[Any, Any], material: Material, cell: dict[str, Any]) -> Line:
    name, metric = str(line["cell_id"]), str(line["metric"])
    papers = material.papers[name]
    difference, _, away = difference_text(line).partition(" ")
    entries = [
        Entry(str(line["label"]), link=f"cells/{name}.html"),
        Entry(str(line["budget"]), _budget_order(str(line["budget"]), float(line["slots_requested"]))),
        Entry(str(line["task"]), small="" if metric == str(line["task"]) else metric_title(metric)),
        number(line["value"], value_text(line), interval_text(line)),
        _place(line),
        number(line["difference"], difference or "–", away, tone=verdict(line)),
        number(line["slots_kept"], f"{line['slots_kept']:,.0f}"),
        number(line["n"], f"{line['n']:,}"),
        Entry(regime(cell)),
        Entry(str(cell["model"])),
        Entry(", ".join(papers) or "–"),
    ]
    keys = {
        "paper": papers,
        "task": [str(line["task"])],
        "budget": [str(line["budget"])],
        "regime": [regime(cell)],
        "model": [str(cell["model"])],
    }
    return Line(entries, keys, "reference" if line["dense"] or str(line["policy"]) in REFERENCES else "")


def _budget_order(text: str, slots: float) -> str:
    return repr(float("inf") if slots < 0 else slots) if text != "full" else "1e18"


def _place(line: dict[Any, Any]) -> Entry:
    if not line["place"]:
        return Entry("–", "")
    best = "best" if line["place"] == 1 else ""
    return number(float(line["place"]), str(line["place"]), f"of {line['rivals']}", best)
