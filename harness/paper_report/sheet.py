"""A table as lines of text cells with spans, the one form that HTML, Markdown and LaTeX are written from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.paper_report.tables import PaperTable, Place, Row, Span
from harness.published.layouts import field_title, title

What = Literal["paper", "ours", "difference"]


@dataclass(frozen=True)
class Text:
    """One cell. ``small`` stands beside the text in less weight: an interval. ``note``: of a suspect number."""

    text: str
    small: str = ""
    rank: str = ""
    note: int = 0
    span: int = 1
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """``heads`` are given on the first line of a printed row and empty on the others."""

    what: What
    heads: tuple[str, ...]
    cells: tuple[Text, ...]
    first: bool
    lines: int  # of this printed row


@dataclass(frozen=True)
class Sheet:
    """``groups``: (heading, columns) above ``columns``; ``panels``: (title, lines)."""

    groups: list[tuple[str, int]]
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    panels: list[tuple[str, list[Line]]]


def sheet(table: PaperTable) -> Sheet:
    """What of the paper, ours and difference there is, line by line."""
    heads = tuple(field_title(name) for name in _shown_heads(table))
    columns = tuple(" · ".join(title_of(name, value) for name, value in zip(table.layout.columns, key, strict=True))
                    for key in table.columns)  # fmt: skip
    panels: dict[tuple[str, ...], list[Line]] = {}
    for row in table.rows:
        panels.setdefault(row.panel, []).extend(_lines(table, row))
    return Sheet(table.groups, heads, columns, [(panel_title(table, key), lines) for key, lines in panels.items()])


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
    return title(value)


def panel_title(table: PaperTable, key: tuple[str, ...]) -> str:
    """``B = 128``, ``Llama-3.1-8B-Instruct``; empty for the rows before the first panel."""
    words = {"budget": "Budget {}", "block_size": "Block size {}", "panel": "Panel ({})"}
    shown = [words.get(n, "{}").format(title_of(n, v)) for n, v in zip(table.layout.panels, key, strict=True) if v]
    return ", ".join(shown)


def number(value: float, printed: str = "") -> str:
    """With the digits that the paper prints at this place; else three significant ones, at least two decimals."""
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
    differing = [n for place, n in enumerate(names) if len({row.heads[place] for row in table.rows}) > 1]
    return tuple(differing) or names[:1]


def _lines(table: PaperTable, row: Row) -> Iterator[Line]:
    named = dict(zip(table.layout.rows, row.heads, strict=True))
    heads = tuple(title_of(name, named[name]) for name in _shown_heads(table))
    found: list[tuple[What, tuple[Text, ...]]] = []
    if table.has_printed:
        found.append(("paper", tuple(_theirs(place) for place in row.places)))
    if table.has_ours or not found:
        found.append(("ours", tuple(_ours(span) for span in row.spans)))
    if table.has_printed and table.has_ours:
        found.append(("difference", tuple(_difference(span) for span in row.spans)))
    for position, (what, cells) in enumerate(found):
        yield Line(what, heads, cells, position == 0, len(found))


def _theirs(place: Place | None) -> Text:
    if place is None:
        return Text("")
    text = place.printed.printed or ("lost" if place.printed.flag == "lost" else "–")
    return Text(text, rank=place.rank, note=place.note, hint=place.printed.flag_reason)


def _ours(span: Span) -> Text:
    first = span.places[0]
    if first is None:
        return Text("")
    own, digits = span.ours, first.printed.printed
    if own is None:
        return Text("–", hint=first.reason)
    interval = "" if math.isnan(own.low) else f"[{number(own.low, digits)}, {number(own.high, digits)}]"
    return Text(number(own.value, digits), interval, first.our_rank, span=len(span.places), hint=f"{own.n} samples")


def _difference(span: Span) -> Text:
    if math.isnan(span.difference):
        return Text("", span=len(span.places))
    digits = span.places[0].printed.printed if span.places[0] else ""
    text = number(span.difference, digits)
    sign = "" if text.startswith("-") else "+"
    return Text((sign + text).replace("-", "−"), span=len(span.places))
