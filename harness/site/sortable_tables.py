"""Tables that a reader can sort and filter: the lines of the leaderboard, the ledger and the claims, as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from harness.report.labels import NLL, REFERENCES, metric_title, ordered_budgets, ordered_policies
from harness.report.ledger_table import bytes_text
from harness.report.rows import CONTEXT
from harness.report.summary import difference_text, interval_text, value_text, verdict
from harness.site.contents import SiteContents, regime


@dataclass(frozen=True)
class TableCell:
    """One place. ``order``: what it is sorted by where that is not its text; empty places stay below."""

    text: str
    order: str = ""
    small: str = ""  # behind the text, in small print
    link: str = ""
    tone: str = ""  # a class of the style sheet: better, worse, …


@dataclass(frozen=True)
class TableLine:
    """``keys``: what filters compare, by filter; several values where a line belongs to several papers."""

    entries: Sequence[TableCell]
    keys: dict[str, Sequence[str]]
    tone: str = ""


@dataclass(frozen=True)
class TableColumn:
    """``small``: what is printed under the title; ``number``: set to the right, and sorted with the greatest first."""

    title: str
    small: str = ""
    number: bool = False


@dataclass(frozen=True)
class TableFilter:
    """A choice above a table. ``wording``: what stands for all of them."""

    name: str
    title: str
    options: Sequence[str]


@dataclass(frozen=True)
class SortableTable:
    """``noun``: what a line is, for "34 of 120 cells"."""

    name: str
    noun: str
    columns: Sequence[TableColumn]
    lines: Sequence[TableLine]
    filters: Sequence[TableFilter] = field(default=())
    common: Sequence[tuple[str, str]] = field(default=())  # columns left out because every line says the same


def filters_of(
    lines: Iterable[TableLine], titles: Mapping[str, str], orders: Mapping[str, Sequence[str]]
) -> list[TableFilter]:
    """A filter for every key that tells lines apart. ``orders``: how its values are listed, else as they come."""
    lines = list(lines)
    found = []
    for name, title in titles.items():
        values = dict.fromkeys(value for line in lines for value in line.keys[name])
        listed = [value for value in orders.get(name, tuple(values)) if value in values]
        alike = all(set(line.keys[name]) == set(values) for line in lines)
        if values and not alike:
            found.append(TableFilter(name, title, listed))
    return found


def without_common(table: SortableTable, titles: Sequence[str]) -> SortableTable:
    """The table without those of the named columns in which all lines agree; ``common`` says what they agree on."""
    common = {
        at: (column.title, table.lines[0].entries[at].text)
        for at, column in enumerate(table.columns)
        if column.title in titles and len({line.entries[at].text for line in table.lines}) == 1
    }
    kept = [at for at in range(len(table.columns)) if at not in common]
    return replace(
        table,
        columns=[table.columns[at] for at in kept],
        lines=[replace(line, entries=[line.entries[at] for at in kept]) for line in table.lines],
        common=list(common.values()),
    )


def number(value: Any, text: str, small: str = "", tone: str = "") -> TableCell:
    """A place that is sorted by ``value``; NaN and None have no order."""
    nothing = value is None or (isinstance(value, float) and not math.isfinite(value))
    return TableCell(text, "" if nothing else repr(float(value)), small, tone=tone)


# The leaderboard: every cell and metric with its score, its distance to dense, and its place among its rivals.


RIVALS = (*CONTEXT, "task", "metric", "budget")  # places are given among cells that differ in their policy alone
COLUMNS = (
    TableColumn("policy"),
    TableColumn("budget"),
    TableColumn("task"),
    TableColumn("score", "mean, 95 % interval", number=True),
    TableColumn("place", "same task and budget", number=True),
    TableColumn("to dense", "paired, 95 % interval", number=True),
    TableColumn("kept", "slots, mean", number=True),
    TableColumn("samples", number=True),
    TableColumn("prompt"),
    TableColumn("model"),
    TableColumn("papers"),
)
TITLES = {"paper": "paper", "task": "task", "budget": "budget", "regime": "prompt regime", "model": "model"}


def leaderboard_page(material: SiteContents) -> SortableTable:
    """One line per cell and metric, within each task and budget the best first; dense and reference lines unplaced."""
    placed = with_places(material.summary)
    cells = material.cells
    lines = [_line(each, material, cells[str(each["cell_id"])]) for each in _ordered(placed).to_dict("records")]
    orders = {"budget": ordered_budgets(placed["budget"]), "task": sorted(set(placed["task"]))}
    table = SortableTable("leaderboard", "lines", COLUMNS, lines, filters_of(lines, TITLES, orders))
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


def _line(line: dict[Any, Any], material: SiteContents, cell: dict[str, Any]) -> TableLine:
    name, metric = str(line["cell_id"]), str(line["metric"])
    papers = material.papers[name]
    difference, _, away = difference_text(line).partition(" ")
    entries = [
        TableCell(str(line["label"]), link=f"cells/{name}.html"),
        TableCell(str(line["budget"]), _budget_order(str(line["budget"]), float(line["slots_requested"]))),
        TableCell(str(line["task"]), small="" if metric == str(line["task"]) else metric_title(metric)),
        number(line["value"], value_text(line), interval_text(line)),
        _place(line),
        number(line["difference"], difference or "–", away, tone=verdict(line)),
        number(line["slots_kept"], f"{line['slots_kept']:,.0f}"),
        number(line["n"], f"{line['n']:,}"),
        TableCell(regime(cell)),
        TableCell(str(cell["model"])),
        TableCell(", ".join(papers) or "–"),
    ]
    keys = {
        "paper": papers,
        "task": [str(line["task"])],
        "budget": [str(line["budget"])],
        "regime": [regime(cell)],
        "model": [str(cell["model"])],
    }
    return TableLine(entries, keys, "reference" if line["dense"] or str(line["policy"]) in REFERENCES else "")


def _budget_order(text: str, slots: float) -> str:
    return repr(float("inf") if slots < 0 else slots) if text != "full" else "1e18"


def _place(line: dict[Any, Any]) -> TableCell:
    if not line["place"]:
        return TableCell("–", "")
    best = "best" if line["place"] == 1 else ""
    return number(float(line["place"]), str(line["place"]), f"of {line['rivals']}", best)


# The ledger page: what each cell was allowed, and what it really kept.


LEDGER_COLUMNS = (
    TableColumn("policy"),
    TableColumn("budget"),
    TableColumn("task"),
    TableColumn("prompt"),
    TableColumn("requested", "slots", number=True),
    TableColumn("kept", "slots, largest", number=True),
    TableColumn("peak", "slots, largest", number=True),
    TableColumn("K and V", "bytes", number=True),
    TableColumn("policy state", "bytes", number=True),
    TableColumn("evicted", "tokens, mean", number=True),
    TableColumn("coverage", "% of prompt, mean", number=True),
    TableColumn("samples", number=True),
    TableColumn("invalid", "rows", number=True),
)


def ledger_page(material: SiteContents) -> SortableTable:
    """One line per cell, invalid ones included."""
    lines = [_ledger_line(each, material) for each in material.ledger.to_dict("records")]
    budgets, tasks = ordered_budgets(material.ledger["budget"]), sorted(set(material.ledger["task"]))
    titles = {**TITLES, "invalid": "promises"}
    table = SortableTable(
        "ledger", "cells", LEDGER_COLUMNS, lines, filters_of(lines, titles, {"budget": budgets, "task": tasks})
    )
    return without_common(table, ("prompt", "invalid"))


def _ledger_line(line: dict[Any, Any], material: SiteContents) -> TableLine:
    name = str(line["cell_id"])
    entries = [
        TableCell(str(line["label"]), link=f"cells/{name}.html"),
        number(1e18 if line["dense"] else line["requested_max"], str(line["budget"])),
        TableCell(str(line["task"])),
        TableCell(regime(line)),
        number(None if line["dense"] else line["requested_max"], requested(line)),
        number(line["kept_max"], f"{line['kept_max']:,}"),
        number(line["peak"], f"{line['peak']:,}"),
        number(line["kv_bytes"], bytes_text(line["kv_bytes"])),
        number(line["state_bytes"], bytes_text(line["state_bytes"])),
        number(line["evicted"], f"{line['evicted']:,.1f}"),
        number(line["coverage"], f"{100 * line['coverage']:.1f}"),
        number(line["samples"], f"{line['samples']:,}"),
        number(line["invalid_rows"], f"{line['invalid_rows']:,}", tone="worse" if line["invalid_rows"] else ""),
    ]
    keys = {
        "paper": material.papers[name],
        "task": [str(line["task"])],
        "budget": [str(line["budget"])],
        "regime": [regime(line)],
        "model": [str(line["model"])],
        "invalid": ["broken" if line["invalid_rows"] else "kept"],
    }
    return TableLine(entries, keys, "reference" if line["dense"] or str(line["policy"]) in REFERENCES else "")


def requested(line: dict[Any, Any]) -> str:
    """``128``, ``120 to 128`` where samples differ, ``all`` for dense."""
    low, high = line["requested_min"], line["requested_max"]
    return "all" if line["dense"] else f"{low:,}" if low == high else f"{low:,} to {high:,}"
