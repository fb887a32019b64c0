"""A paper's table as HTML cells, Markdown, LaTeX and CSV, all written from one form: lines of text cells with spans."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.papers.paper_tables import ComparedNumber, NumberSpan, PaperTable, TableRow
from harness.papers.table_layouts import field_title, printed_title

LineKind = Literal["paper", "ours", "difference"]


@dataclass(frozen=True)
class SheetText:
    """One cell. ``small``: follows the text in small print (an interval). ``note``: of a suspect number."""

    text: str
    small: str = ""
    rank: str = ""
    note: int = 0
    span: int = 1
    hint: str = ""


@dataclass(frozen=True)
class SheetLine:
    """``heads`` are given on the first line of a printed row and empty on the others."""

    what: LineKind
    heads: tuple[str, ...]
    cells: tuple[SheetText, ...]
    first: bool
    lines: int  # of this printed row


@dataclass(frozen=True)
class TextSheet:
    """``groups``: (heading, columns) above ``columns``; ``panels``: (title, lines)."""

    groups: list[tuple[str, int]]
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    panels: list[tuple[str, list[SheetLine]]]


def text_sheet(table: PaperTable) -> TextSheet:
    """The table line by line: printed numbers, our values and differences, as far as there are any."""
    heads = tuple(field_title(name) for name in _shown_heads(table))
    columns = tuple(" · ".join(title_of(name, value) for name, value in zip(table.layout.columns, key, strict=True))
                    for key in table.columns)  # fmt: skip
    panels: dict[tuple[str, ...], list[SheetLine]] = {}
    for row in table.rows:
        panels.setdefault(row.panel, []).extend(_lines(table, row))
    return TextSheet(table.groups, heads, columns, [(panel_title(table, key), lines) for key, lines in panels.items()])


def title_of(name: str, value: str) -> str:
    """A coordinate as a reader knows it: ``2048`` tokens are ``2K``."""
    if name == "budget" and value.isdigit() and int(value) >= 1024:
        return f"{int(value) // 1024}K"
    if name == "attn_recovery_frac" and value:
        return f"recovery {value}"
    if name == "recent":
        return value or "none"
    if name == "setting":
        return value.replace("_prime", "′").replace("_pct", " (%)").replace("_", " ").replace("=", " = ")
    if name == "block_size":
        return "∞" if value == "inf" else value
    return printed_title(value)


def panel_title(table: PaperTable, key: tuple[str, ...]) -> str:
    """``B = 128``, ``Llama-3.1-8B-Instruct``; empty for the rows before the first panel."""
    words = {"budget": "Budget {}", "block_size": "Block size {}", "panel": "Panel ({})"}
    shown = [words.get(n, "{}").format(title_of(n, v)) for n, v in zip(table.layout.panels, key, strict=True) if v]
    return ", ".join(shown)


def format_number(value: float, printed: str = "") -> str:
    """With as many decimals as the printed number has; else three significant digits, at least two decimals."""
    if math.isnan(value):
        return "–"
    digits = len(printed.partition(".")[2]) if printed else None
    if digits is None:
        digits = 2 if abs(value) >= 0.1 or value == 0 else min(8, 1 - math.floor(math.log10(abs(value))) + 1)
    if printed and value and abs(value) < 10**-digits:
        return f"{value:.2g}"
    return f"{value:.{digits}f}"


def _shown_heads(table: PaperTable) -> tuple[str, ...]:
    """Row fields in which rows differ; at least one."""
    names = table.layout.rows
    differing = [n for i, n in enumerate(names) if len({row.heads[i] for row in table.rows}) > 1]
    return tuple(differing) or names[:1]


def _lines(table: PaperTable, row: TableRow) -> Iterator[SheetLine]:
    named = dict(zip(table.layout.rows, row.heads, strict=True))
    heads = tuple(title_of(name, named[name]) for name in _shown_heads(table))
    found: list[tuple[LineKind, tuple[SheetText, ...]]] = []
    if table.has_printed:
        found.append(("paper", tuple(_printed_cell(number) for number in row.numbers)))
    if table.has_ours or not found:
        found.append(("ours", tuple(_measured_cell(span) for span in row.spans)))
    if table.has_printed and table.has_ours:
        found.append(("difference", tuple(_difference_cell(span) for span in row.spans)))
    for position, (what, cells) in enumerate(found):
        yield SheetLine(what, heads, cells, position == 0, len(found))


def _printed_cell(number: ComparedNumber | None) -> SheetText:
    if number is None:
        return SheetText("")
    text = number.printed.printed or ("lost" if number.printed.flag == "lost" else "–")
    return SheetText(text, rank=number.rank, note=number.note, hint=number.printed.flag_reason)


def _measured_cell(span: NumberSpan) -> SheetText:
    first = span.numbers[0]
    if first is None:
        return SheetText("")
    own, digits = span.ours, first.printed.printed
    if own is None:
        return SheetText("–", hint=first.reason)
    interval = "" if math.isnan(own.low) else f"[{format_number(own.low, digits)}, {format_number(own.high, digits)}]"
    return SheetText(
        format_number(own.value, digits), interval, first.our_rank, span=len(span.numbers), hint=f"{own.n} samples"
    )


def _difference_cell(span: NumberSpan) -> SheetText:
    if math.isnan(span.difference):
        return SheetText("", span=len(span.numbers))
    digits = span.numbers[0].printed.printed if span.numbers[0] else ""
    text = format_number(span.difference, digits)
    sign = "" if text.startswith("-") else "+"
    return SheetText((sign + text).replace("-", "−"), span=len(span.numbers))


# A table as Markdown, LaTeX and CSV.


CSV_COLUMNS = (
    "published", "published_rank", "ours", "low", "high", "samples", "our_rank", "difference", "stands_for", "reason",
    "flag", "flag_reason",
)  # fmt: skip
_TEX = {
    "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$\infty$",
    "−": "$-$", "·": r"$\cdot$", "–": "--", "′": "'", "λ": r"$\lambda$",
}  # fmt: skip


def markdown(table: PaperTable, title: str, notes: Sequence[str]) -> str:
    """GitHub tables, one per panel. ``″`` marks a neighbour that shares the number to its left."""
    own = text_sheet(table)
    out = [f"# {title}", *notes]
    for name, lines in own.panels:
        rows = [[*own.heads, "", *own.columns], ["---"] * (len(own.heads) + 1 + len(own.columns))]
        rows += [[*_line_heads(line), line.what, *_spanned(line, _markdown_cell, "″")] for line in lines]
        block = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        out.append(f"**{name}**\n\n{block}" if name else block)
    out += [f"{number}. {kind}: {reason}" for number, (kind, reason) in enumerate(table.suspects, start=1)]
    return "\n\n".join(out) + "\n"


def latex(table: PaperTable, title: str, notes: Sequence[str]) -> str:
    """A ``table*`` with ``booktabs``; suspect numbers carry theirs as a superscript."""
    own = text_sheet(table)
    width = len(own.heads) + 1 + len(own.columns)
    body = [r"\begin{tabular}{" + "l" * (len(own.heads) + 1) + "r" * len(own.columns) + "}", r"\toprule"]
    if own.groups:
        spans = [rf"\multicolumn{{{columns}}}{{c}}{{{escape_tex(name)}}}" for name, columns in own.groups]
        body.append(" & ".join([""] * len(own.heads) + ["", *spans]) + r" \\")
    body += [" & ".join([*map(escape_tex, own.heads), "", *map(escape_tex, own.columns)]) + r" \\", r"\midrule"]
    for name, lines in own.panels:
        if name:
            body.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape_tex(name)}}}}} \\")
        for line in lines:
            cells = [*map(escape_tex, _line_heads(line)), line.what, *(_tex_cell(cell, line) for cell in line.cells)]
            body.append(" & ".join(cells) + r" \\")
        body.append(r"\midrule")
    body[-1] = r"\bottomrule"
    remarks = [*notes, *(f"{n}: {kind}; {reason}" for n, (kind, reason) in enumerate(table.suspects, start=1))]
    caption = escape_tex(" ".join((f"{title}.", *remarks)))
    rows = [r"% \usepackage{booktabs}", r"\begin{table*}", r"\centering\scriptsize", *body, r"\end{tabular}",
            rf"\caption{{{caption}}}", r"\end{table*}"]  # fmt: skip
    return "\n".join(rows) + "\n"


def csv_of_numbers(table: PaperTable) -> str:
    """One line per printed number in the table's order, our values in full precision."""
    names = (*table.layout.panels, *table.layout.rows, *table.layout.columns)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow((*names, *CSV_COLUMNS))
    for row in table.rows:
        for span in row.spans:
            for number in span.numbers:
                if number is None:
                    continue
                own, theirs = number.ours, number.printed
                writer.writerow((
                    *(theirs.at.get(name, "") for name in names), theirs.printed, number.rank,
                    *(_csv_number(x) for x in ((own.value, own.low, own.high) if own else (math.nan,) * 3)),
                    own.n if own else "", number.our_rank, _csv_number(span.difference),
                    len(span.numbers) if own else "",
                    number.reason, theirs.flag, theirs.flag_reason,
                ))  # fmt: skip
    return buffer.getvalue()


def csv_of_table(table: PaperTable) -> str:
    """The paper's own rows and columns as CSV, for a spreadsheet: a line each of paper, ours and difference."""
    own = text_sheet(table)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*map(field_title, table.layout.panels), *own.heads, "", *own.columns])
    panels = list(dict.fromkeys(row.panel for row in table.rows))
    for panel, (_, lines) in zip(panels, own.panels, strict=True):
        named = [title_of(name, value) for name, value in zip(table.layout.panels, panel, strict=True)]
        writer.writerows([*named, *line.heads, line.what, *_spanned(line, _csv_cell, "")] for line in lines)
    return buffer.getvalue()


def escape_tex(text: str) -> str:
    """Text with TeX's special characters escaped."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _line_heads(line: SheetLine) -> tuple[str, ...]:
    return line.heads if line.first else ("",) * len(line.heads)


def _spanned(line: SheetLine, written: object, again: str) -> Iterator[str]:
    assert callable(written)
    for cell in line.cells:
        yield written(cell)
        yield from [again if cell.text else ""] * (cell.span - 1)


def _csv_cell(cell: SheetText) -> str:
    return f"{cell.text} {cell.small}".strip()


def _markdown_cell(cell: SheetText) -> str:
    text = {"best": f"**{cell.text}**", "second": f"<u>{cell.text}</u>"}.get(cell.rank, cell.text)
    return text + (f" {cell.small}" if cell.small else "") + (f" <sup>{cell.note}</sup>" if cell.note else "")


def _tex_cell(cell: SheetText, line: SheetLine) -> str:
    text = escape_tex(cell.text)
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.rank, text)
    text += (rf" {{\tiny {escape_tex(cell.small)}}}" if cell.small else "") + (
        f"$^{{{cell.note}}}$" if cell.note else ""
    )
    return rf"\multicolumn{{{cell.span}}}{{c}}{{{text}}}" if cell.span > 1 else text


def _csv_number(value: float) -> str:
    return "" if math.isnan(value) else repr(round(value, 10))
