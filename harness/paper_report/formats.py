"""A table as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from harness.paper_report.sheet import Line, Sheet, Text, sheet, title_of
from harness.paper_report.tables import PaperTable
from harness.published.layouts import field_title

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
    """GitHub's tables, a panel under the other. A number that stands for its neighbours too is followed by ``″``."""
    own = sheet(table)
    out = [f"# {title}", *notes]
    for name, lines in own.panels:
        rows = [[*own.heads, "", *own.columns], ["---"] * (len(own.heads) + 1 + len(own.columns))]
        rows += [[*_heads(line), line.what, *_spread(line, _markdown_cell, "″")] for line in lines]
        block = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        out.append(f"**{name}**\n\n{block}" if name else block)
    out += [f"{number}. {kind}: {reason}" for number, (kind, reason) in enumerate(table.suspects, start=1)]
    return "\n\n".join(out) + "\n"


def latex(table: PaperTable, title: str, notes: Sequence[str]) -> str:
    """A ``table*`` with ``booktabs``; suspect numbers carry theirs as a superscript."""
    own = sheet(table)
    width = len(own.heads) + 1 + len(own.columns)
    body = [r"\begin{tabular}{" + "l" * (len(own.heads) + 1) + "r" * len(own.columns) + "}", r"\toprule"]
    if own.groups:
        spans = [rf"\multicolumn{{{columns}}}{{c}}{{{tex(name)}}}" for name, columns in own.groups]
        body.append(" & ".join([""] * len(own.heads) + ["", *spans]) + r" \\")
    body += [" & ".join([*map(tex, own.heads), "", *map(tex, own.columns)]) + r" \\", r"\midrule"]
    for name, lines in own.panels:
        if name:
            body.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{tex(name)}}}}} \\")
        for line in lines:
            cells = [*map(tex, _heads(line)), line.what, *(_tex_cell(cell, line) for cell in line.cells)]
            body.append(" & ".join(cells) + r" \\")
        body.append(r"\midrule")
    body[-1] = r"\bottomrule"
    said = [*notes, *(f"{n}: {kind}; {reason}" for n, (kind, reason) in enumerate(table.suspects, start=1))]
    caption = tex(" ".join((f"{title}.", *said)))
    rows = [r"% \usepackage{booktabs}", r"\begin{table*}", r"\centering\scriptsize", *body, r"\end{tabular}",
            rf"\caption{{{caption}}}", r"\end{table*}"]  # fmt: skip
    return "\n".join(rows) + "\n"


def comma_separated(table: PaperTable) -> str:
    """One line for each printed place in the table's order, numbers in full precision."""
    names = (*table.layout.panels, *table.layout.rows, *table.layout.columns)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow((*names, *CSV_COLUMNS))
    for row in table.rows:
        for span in row.spans:
            for place in span.places:
                if place is None:
                    continue
                own, theirs = place.ours, place.printed
                writer.writerow((
                    *(theirs.at.get(name, "") for name in names), theirs.printed, place.rank,
                    *(_plain(x) for x in ((own.value, own.low, own.high) if own else (math.nan,) * 3)),
                    own.n if own else "", place.our_rank, _plain(span.difference), len(span.places) if own else "",
                    place.reason, theirs.flag, theirs.flag_reason,
                ))  # fmt: skip
    return buffer.getvalue()


def wide(table: PaperTable) -> str:
    """The paper's own rows and columns as CSV, for a spreadsheet: a line each of paper, ours and difference."""
    own = sheet(table)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*map(field_title, table.layout.panels), *own.heads, "", *own.columns])
    panels = list(dict.fromkeys(row.panel for row in table.rows))
    for panel, (_, lines) in zip(panels, own.panels, strict=True):
        named = [title_of(name, value) for name, value in zip(table.layout.panels, panel, strict=True)]
        writer.writerows([*named, *line.heads, line.what, *_spread(line, _csv_cell, "")] for line in lines)
    return buffer.getvalue()


def tex(text: str) -> str:
    """Text in which nothing is an order to TeX."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _heads(line: Line) -> tuple[str, ...]:
    return line.heads if line.first else ("",) * len(line.heads)


def _spread(line: Line, written: object, again: str) -> Iterator[str]:
    assert callable(written)
    for cell in line.cells:
        yield written(cell)
        yield from [again if cell.text else ""] * (cell.span - 1)


def _csv_cell(cell: Text) -> str:
    return f"{cell.text} {cell.small}".strip()


def _markdown_cell(cell: Text) -> str:
    text = {"best": f"**{cell.text}**", "second": f"<u>{cell.text}</u>"}.get(cell.rank, cell.text)
    return text + (f" {cell.small}" if cell.small else "") + (f" <sup>{cell.note}</sup>" if cell.note else "")


def _tex_cell(cell: Text, line: Line) -> str:
    text = tex(cell.text)
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.rank, text)
    text += (rf" {{\tiny {tex(cell.small)}}}" if cell.small else "") + (f"$^{{{cell.note}}}$" if cell.note else "")
    return rf"\multicolumn{{{cell.span}}}{{c}}{{{text}}}" if cell.span > 1 else text


def _plain(value: float) -> str:
    return "" if math.isnan(value) else repr(round(value, 10))


__all__ = ["Sheet", "comma_separated", "latex", "markdown", "tex", "wide"]
