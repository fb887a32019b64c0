"""The ledger page: what each cell was allowed, and what it really kept."""

from __future__ import annotations

from typing import Any

from harness.report.colours import REFERENCES
from harness.report.ledger import bytes_text
from harness.report.names import ordered_budgets
from harness.site.leaderboard import TITLES
from harness.site.material import Material, regime
from harness.site.tables import Column, Entry, Line, Table, filters_of, number, without_common

COLUMNS = (
    Column("policy"),
    Column("budget"),
    Column("task"),
    Column("prompt"),
    Column("requested", "slots", number=True),
    Column("kept", "slots, largest", number=True),
    Column("peak", "slots, largest", number=True),
    Column("K and V", "bytes", number=True),
    Column("policy state", "bytes", number=True),
    Column("evicted", "tokens, mean", number=True),
    Column("coverage", "% of prompt, mean", number=True),
    Column("samples", number=True),
    Column("invalid", "rows", number=True),
)


def ledger(material: Material) -> Table:
    """One line per cell, invalid ones included."""
    lines = [_line(each, material) for each in material.ledger.to_dict("records")]
    budgets, tasks = ordered_budgets(material.ledger["budget"]), sorted(set(material.ledger["task"]))
    titles = {**TITLES, "invalid": "promises"}
    table = Table("ledger", "cells", COLUMNS, lines, filters_of(lines, titles, {"budget": budgets, "task": tasks}))
    return without_common(table, ("prompt", "invalid"))


def _line(line: dict[Any, Any], material: Material) -> Line:
    name = str(line["cell_id"])
    entries = [
        Entry(str(line["label"]), link=f"cells/{name}.html"),
        number(1e18 if line["dense"] else line["requested_max"], str(line["budget"])),
        Entry(str(line["task"])),
        Entry(regime(line)),
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
    return Line(entries, keys, "reference" if line["dense"] or str(line["policy"]) in REFERENCES else "")


def requested(line: dict[Any, Any]) -> str:
    """``128``, ``120 to 128`` where samples differ, ``all`` for dense."""
    low, high = line["requested_min"], line["requested_max"]
    return "all" if line["dense"] else f"{low:,}" if low == high else f"{low:,} to {high:,}"
