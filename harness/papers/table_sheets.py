"""A paper's table as text: what is kept of dense, ours beside the paper's; our scores; and the numbers as printed.

Each sheet is lines of text cells under columns; every file format is written from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.papers.kept_shares import KeptAs, kept_as
from harness.papers.merged_tables import MergedRow, MergedTable, merged
from harness.papers.paper_tables import Key, PaperTable
from harness.papers.sheet_cells import SheetLine, kept_lines, printed_cell, score_lines
from harness.papers.table_agreement import Agreement, agreement
from harness.papers.table_layouts import column_group
from harness.papers.table_titles import column_title, head_titles, panel_title, row_heads, title_of


@dataclass(frozen=True)
class SheetColumn:
    """``small``: the task of ours that stands in for the title's. ``group``: a heading that it shares."""

    title: str
    group: str = ""
    small: str = ""
    is_average: bool = False


@dataclass(frozen=True)
class TextSheet:
    """``panels``: (title, lines)."""

    heads: tuple[str, ...]
    columns: tuple[SheetColumn, ...]
    panels: tuple[tuple[str, tuple[SheetLine, ...]], ...]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings above the columns and how many columns each spans; empty where there are none."""
        out: list[tuple[str, int]] = []
        for column in self.columns:
            same = bool(out) and out[-1][0] == column.group
            out = [*out[:-1], (column.group, out[-1][1] + 1)] if same else [*out, (column.group, 1)]
        return out if any(heading for heading, _ in out) else []

    @property
    def group_numbers(self) -> tuple[int, ...]:
        """For each column the number of its heading, from 0."""
        return tuple(number for number, (_, columns) in enumerate(self.groups) for _ in range(columns))


def sheets_of(table: PaperTable) -> TableSheets:
    """The sheets of a table, laid out once for the page, Markdown, LaTeX and CSV."""
    if "sheets" not in table.computed:
        table.computed["sheets"] = TableSheets(table)
    found: TableSheets = table.computed["sheets"]
    return found


@dataclass(frozen=True)
class TableSheets:
    """The sheets of one table. A wide print goes on below: `printed` has several sheets then."""

    table: PaperTable

    @cached_property
    def merged(self) -> MergedTable:
        """The table with each number of ours once."""
        return merged(self.table)

    @cached_property
    def agreement(self) -> Agreement | None:
        """How far the order of the methods is the paper's."""
        return agreement(self.merged)

    @cached_property
    def kept(self) -> tuple[TextSheet, ...]:
        """What is kept of dense, the paper's and ours; empty where nothing of ours was measured."""
        return self._sheets(kept_lines) if self.table.has_ours else ()

    @cached_property
    def scores(self) -> tuple[TextSheet, ...]:
        """Our scores with their intervals; with the paper's own model also its numbers and the difference."""
        return self._sheets(score_lines) if self.table.has_ours else ()

    @cached_property
    def printed(self) -> tuple[TextSheet, ...]:
        """The numbers as printed; of a table of which only the caption is known nothing."""
        table = self.table
        if not table.has_printed and table.has_ours:
            return ()
        columns = _columns(table, [(key,) for key in table.columns], [""] * len(table.columns))
        panels: dict[str, list[SheetLine]] = {}
        for row in table.rows:
            cells = tuple(printed_cell(number) for number in row.numbers)
            line = SheetLine("", "paper", row_heads(table, [row]), cells, True, 1)
            panels.setdefault(panel_title(table, [row]), []).append(line)
        found = TextSheet(head_titles(table), columns, tuple((name, tuple(lines)) for name, lines in panels.items()))
        return _wrapped(found, table.layout.wrap)

    @property
    def legend(self) -> tuple[str, ...]:
        """What the cells of `kept` are, as far as the table has them."""
        forms = {kept_as(number.printed.at["metric"]) for number in self.table.numbers if number.ours}
        has_dense = any(number.is_dense for number in self.table.numbers)
        out = [_LEGENDS[form] for form in ("share", "nats", "itself") if form in forms]
        if has_dense and forms & {"share", "nats"}:
            out.append("The full cache has its score itself.")
        if any(math.isnan(each.kept) and each.is_printed and each.ours for each in self.table.numbers):
            out.append("Where the paper prints no dense score its numbers stand as printed (in italics).")
        if self.merged.has_order:
            out.append("In brackets: the rank, from 1, among what is compared, on either side by its own numbers.")
        if any(place.again for row in self.merged.rows for place in row.places):
            out.append("″: the same cell of ours as above.")
        return tuple(out)

    @property
    def counted(self) -> str:
        """How many numbers of ours there are, and the samples behind each."""
        table = self.table
        many = f"{table.our_numbers:,} numbers" if table.our_numbers != 1 else "1 number"
        places = f", which stand in for {len(table.numbers):,} places" if len(table.numbers) > table.our_numbers else ""
        samples = "/".join(map(str, table.samples))
        return f"{many} of ours{places}; {samples} samples behind each, 95 % intervals in brackets."

    @property
    def left_out(self) -> str:
        """The printed columns that nothing of ours stands in for."""
        if not self.table.has_ours:
            return ""
        empty = [keys for c, keys in enumerate(self.merged.columns) if not _is_measured(self.merged, c)]
        names = dict.fromkeys(column_title(self.table, keys) for keys in empty)
        return f"Nothing of ours stands in for: {', '.join(names)}." if names else ""

    def _sheets(self, lines_of: Callable[[PaperTable, MergedRow], Iterator[SheetLine]]) -> tuple[TextSheet, ...]:
        own, table = self.merged, self.table
        shown = [c for c in range(len(own.columns)) if _is_measured(own, c)]
        smalls = [_ours_of(own, c) for c in shown]
        columns = _columns(table, [own.columns[c] for c in shown], smalls)
        panels: dict[str, list[SheetLine]] = {}
        for row in own.rows:
            if any(place.first and place.first.ours for place in row.places):
                kept = replace(row, places=tuple(row.places[c] for c in shown))
                panels.setdefault(panel_title(table, row.rows), []).extend(lines_of(table, kept))
        found = TextSheet(head_titles(table), columns, tuple((name, tuple(lines)) for name, lines in panels.items()))
        return _wrapped(found, table.layout.wrap)


_LEGENDS: dict[KeptAs, str] = {
    "share": "Percent: the score over that of the full cache, each of its own model on its own task.",
    "nats": "Perplexity: nats per token above the full cache, log(ppl / ppl of the full cache); lower is better.",
    "itself": "What has no full cache to be compared with stands as it is.",
}


def _is_measured(own: MergedTable, column: int) -> bool:
    return any((first := row.places[column].first) and first.ours for row in own.rows)


def _ours_of(own: MergedTable, column: int) -> str:
    """The task of ours that a column shows, where it is another than the paper's."""
    if own.table.same_model or "task" not in own.table.layout.columns:
        return ""
    found = next(f for row in own.rows if (f := row.places[column].first) and f.ours)
    if found.cells is None:
        return ""
    tasks = [cell.task for cell in found.cells.cells]
    return tasks[0].rpartition("/")[2].replace("_", " ") if len(tasks) == 1 else f"mean of {len(tasks)} tasks"


def _columns(table: PaperTable, keys: Sequence[tuple[Key, ...]], smalls: Sequence[str]) -> tuple[SheetColumn, ...]:
    names = table.layout.columns
    groups = [_group(table, each) for each in keys]
    merged_columns = any(len(each) > 1 for each in keys)
    if len(names) == 1 and (merged_columns or max((groups.count(name) for name in groups if name), default=0) < 2):
        groups = [""] * len(groups)
    out = []
    for each, group, small in zip(keys, groups, smalls, strict=True):
        average = "task" in names and each[0][names.index("task")].endswith("_avg")
        average |= "task" in names and each[0][names.index("task")].startswith("longbench_without")
        out.append(SheetColumn(column_title(table, each, bool(group)), group, small, average))
    return tuple(out)


def _group(table: PaperTable, keys: tuple[Key, ...]) -> str:
    names = table.layout.columns
    if len(names) > 1:  # the first field heads the others
        return title_of(names[0], keys[0][0])
    return column_group(keys[0][0]) if names[0] in ("task", "method") else ""


def _wrapped(sheet: TextSheet, width: int) -> tuple[TextSheet, ...]:
    """The sheet in parts of so many columns, one below the other; itself for a width of 0."""
    if not width:
        return (sheet,)
    out = []
    for start in range(0, len(sheet.columns), width):
        panels = tuple(
            (name, tuple(replace(line, cells=line.cells[start : start + width]) for line in lines))
            for name, lines in sheet.panels
        )
        out.append(TextSheet(sheet.heads, sheet.columns[start : start + width], panels))
    return tuple(out)
