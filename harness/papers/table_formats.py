"""A paper's table as Markdown, LaTeX and CSV, all written from its sheets (`harness.papers.table_sheets`).

Tables of our own measurements as Markdown and CSV.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from harness.papers.measured_tables import MeasuredTable
from harness.papers.paper_tables import PaperTable
from harness.papers.sheet_cells import SheetLine, SheetText
from harness.papers.table_sheets import SheetColumn, TableSheets, TextSheet, sheets_of

KEPT, SCORES, PRINTED = "What is kept of the full cache", "Our scores", "As printed"
CSV_COLUMNS = (
    "published", "published_rank", "published_kept", "ours", "low", "high", "samples", "ours_kept", "our_number",
    "gate", "reason", "flag", "flag_reason",
)  # fmt: skip
_TEX = {
    "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$\infty$",
    "−": "$-$", "·": r"$\cdot$", "–": "--", "′": "'", "λ": r"$\lambda$", "″": "''",
}  # fmt: skip


def markdown(table: PaperTable, title: str, notes: Sequence[str]) -> str:
    """GitHub tables, one per sheet and panel, under a heading for each kind of sheet."""
    own = sheets_of(table)
    out = [f"# {title}", *notes]
    for heading, sheets, remarks in _parts(own):
        out += [f"## {heading}", *remarks]
        for sheet in sheets:
            out += [_markdown_panel(sheet, name, lines) for name, lines in sheet.panels]
    out += [f"{number}. {kind}: {reason}" for number, (kind, reason) in enumerate(table.suspects, start=1)]
    return "\n\n".join(out) + "\n"


def latex(table: PaperTable, title: str, notes: Sequence[str]) -> str:
    """A ``table*`` with ``booktabs`` for each sheet; suspect numbers carry theirs as a superscript."""
    own = sheets_of(table)
    out = [r"% \usepackage{booktabs}"]
    for heading, sheets, remarks in _parts(own):
        suspects = [f"{n}: {kind}; {reason}" for n, (kind, reason) in enumerate(table.suspects, start=1)]
        said = [*notes, *remarks, *(suspects if heading == PRINTED else ())]
        caption = escape_tex(" ".join((f"{title}. {heading}.", *said)))
        for sheet in sheets:
            out += [r"\begin{table*}", r"\centering\scriptsize", *_tabular(sheet), rf"\caption{{{caption}}}",
                    r"\end{table*}"]  # fmt: skip
    return "\n".join(out) + "\n"


def csv_of_table(table: PaperTable) -> str:
    """For a spreadsheet: what is kept, then our scores; without any of ours the numbers as printed."""
    own = sheets_of(table)
    parts = [(KEPT, own.kept), (SCORES, own.scores)] if table.has_ours else [(PRINTED, own.printed)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for heading, sheets in parts:
        for sheet in sheets:
            writer.writerow(["", "panel", *sheet.heads, "", *map(_column_text, sheet.columns)])
            for name, lines in sheet.panels:
                rows = ([heading, name, *line.heads, line.what, *map(_csv_cell, line.cells)] for line in lines)
                writer.writerows(rows)
    return buffer.getvalue()


def csv_of_numbers(table: PaperTable) -> str:
    """One line per printed number in the table's order, our values in full precision.

    ``our_number`` counts our numbers: printed numbers that one of ours stands for have the same.
    """
    names = (*table.layout.panels, *table.layout.rows, *table.layout.columns)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow((*names, *CSV_COLUMNS))
    counted: dict[object, int] = {}
    for number in table.numbers:
        own, theirs = number.ours, number.printed
        which = counted.setdefault(number.identity, len(counted) + 1) if own else ""
        writer.writerow((
            *(theirs.at.get(name, "") for name in names), theirs.printed, number.rank, _csv_number(number.kept),
            *(_csv_number(x) for x in ((own.value, own.low, own.high) if own else (math.nan,) * 3)),
            own.n if own else "", _csv_number(number.our_kept), which, number.gate,
            number.reason, theirs.flag, theirs.flag_reason,
        ))  # fmt: skip
    return buffer.getvalue()


def escape_tex(text: str) -> str:
    """Text with TeX's special characters escaped."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _parts(own: TableSheets) -> Iterator[tuple[str, tuple[TextSheet, ...], tuple[str, ...]]]:
    """(heading, sheets, remarks) of the kinds of sheets that the table has."""
    if own.kept:
        agreed = (own.agreement.sentence,) if own.agreement else ()
        yield KEPT, own.kept, (*agreed, *own.legend, *filter(None, [own.left_out]))
        yield SCORES, own.scores, (own.counted,)
    if own.printed:
        yield PRINTED, own.printed, ()


def markdown_of_measured(table: MeasuredTable) -> str:
    """A GitHub table under its title, with caption and conditions."""
    rows = [table.columns, ["---"] * len(table.columns), *table.texts()]
    block = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n\n".join((f"# {table.title}", table.caption, block, " ".join(table.conditions))) + "\n"


def csv_of_measured(table: MeasuredTable) -> str:
    """Columns and lines, numbers with all their digits."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([table.columns, *table.lines])
    return buffer.getvalue()


def _markdown_panel(sheet: TextSheet, name: str, lines: Sequence[SheetLine]) -> str:
    head = [*sheet.heads, "", *map(_column_text, sheet.columns)]
    rows = [head, ["---"] * len(head)]
    rows += [[*_line_heads(line), line.what, *map(_markdown_cell, line.cells)] for line in lines]
    block = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"**{name}**\n\n{block}" if name else block


def _tabular(sheet: TextSheet) -> list[str]:
    width = len(sheet.heads) + 1 + len(sheet.columns)
    body = [r"\begin{tabular}{" + "l" * (len(sheet.heads) + 1) + "r" * len(sheet.columns) + "}", r"\toprule"]
    if sheet.groups:
        spans = [rf"\multicolumn{{{columns}}}{{c}}{{{escape_tex(name)}}}" for name, columns in sheet.groups]
        body.append(" & ".join([""] * len(sheet.heads) + ["", *spans]) + r" \\")
    titles = [escape_tex(_column_text(column, with_group=False)) for column in sheet.columns]
    body += [" & ".join([*map(escape_tex, sheet.heads), "", *titles]) + r" \\", r"\midrule"]
    for name, lines in sheet.panels:
        if name:
            body.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape_tex(name)}}}}} \\")
        for line in lines:
            cells = [*map(escape_tex, _line_heads(line)), escape_tex(line.what), *map(_tex_cell, line.cells)]
            body.append(" & ".join(cells) + r" \\")
        body.append(r"\midrule")
    body[-1] = r"\bottomrule"
    return [*body, r"\end{tabular}"]


def _column_text(column: SheetColumn, with_group: bool = True) -> str:
    is_method = with_group and column.group and column.title in ("alone", "+ CAOTE", "+ FastCAOTE")
    text = f"{column.group} {column.title}" if is_method else column.title
    return f"{text} (ours: {column.small})" if column.small else text


def _line_heads(line: SheetLine) -> tuple[str, ...]:
    return line.heads if line.first else ("",) * len(line.heads)


def _csv_cell(cell: SheetText) -> str:
    return f"{cell.text} {cell.small}".strip()


def _markdown_cell(cell: SheetText) -> str:
    text = {"best": f"**{cell.text}**", "second": f"<u>{cell.text}</u>"}.get(cell.rank, cell.text)
    text = f"*{text}*" if cell.kind in ("gated", "score") and text else text
    return text + (f" {cell.small}" if cell.small else "") + (f" <sup>{cell.note}</sup>" if cell.note else "")


def _tex_cell(cell: SheetText) -> str:
    text = escape_tex(cell.text)
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.rank, text)
    text = rf"\textit{{{text}}}" if cell.kind in ("gated", "score") and text else text
    small = rf" {{\tiny {escape_tex(cell.small)}}}" if cell.small else ""
    return text + small + (f"$^{{{cell.note}}}$" if cell.note else "")


def _csv_number(value: float) -> str:
    return "" if math.isnan(value) else repr(round(value, 10))
