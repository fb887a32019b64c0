"""The lines of a merged row as text: what is kept of dense, our scores with their intervals, the printed numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.papers.kept_shares import kept_as
from harness.papers.merged_tables import MergedPlace, MergedRow, kept_of
from harness.papers.paper_tables import ComparedNumber, PaperTable
from harness.papers.table_titles import names_of_rows, row_heads

LineKind = Literal["paper", "ours", "difference"]
CellKind = Literal["", "score", "gated", "again"]


@dataclass(frozen=True)
class SheetText:
    """One cell. ``small``: follows the text in small print (a rank, an interval). ``note``: of a suspect number.

    ``kind``: a score among shares; a place whose gate is closed; a number that stands above already.
    """

    text: str
    small: str = ""
    rank: str = ""
    note: int = 0
    hint: str = ""
    kind: CellKind = ""


@dataclass(frozen=True)
class SheetLine:
    """``heads`` are given on the first line of a printed row and empty on the others."""

    what: str
    kind: LineKind
    heads: tuple[str, ...]
    cells: tuple[SheetText, ...]
    first: bool
    lines: int  # of this printed row


def kept_lines(table: PaperTable, row: MergedRow) -> Iterator[SheetLine]:
    """The share of dense that each merged row keeps in print, and ours, with ranks."""
    heads = row_heads(table, row.rows)
    names = names_of_rows(table, row.rows)
    shown = [k for k in range(len(row.rows)) if any(n.is_printed for place in row.places for n in place.printed[k])]
    found: list[tuple[str, LineKind, tuple[SheetText, ...]]] = []
    for k in shown:
        said = f"paper, {names[k]}" if names[k] else "paper"
        found.append((said, "paper", tuple(_kept_in_print(place, k) for place in row.places)))
    found.append(("ours", "ours", tuple(_kept_by_us(place) for place in row.places)))
    for position, (what, kind, cells) in enumerate(found):
        yield SheetLine(what, kind, heads, cells, position == 0, len(found))


def _kept_in_print(place: MergedPlace, row: int) -> SheetText:
    numbers = [number for number in place.printed[row] if number.is_printed]
    if not numbers:
        return SheetText("–" if place.printed[row] else "")
    rank = place.their_ranks[row] if place.their_ranks else 0
    small = f"({rank})" if rank else ""
    kept, first = kept_of(numbers), numbers[0]
    if first.is_dense or math.isnan(kept):
        value = math.fsum(number.printed.value for number in numbers) / len(numbers)
        return SheetText(format_number(value, first.printed.printed), small, kind="score")
    hint = ", ".join(number.printed.printed for number in numbers)
    return SheetText(_kept_text(kept, first), small, hint=f"printed: {hint}")


def _kept_by_us(place: MergedPlace) -> SheetText:
    first = place.first
    if first is None:
        return SheetText("")
    if first.ours is None:
        return SheetText("–", hint=first.reason)
    if place.again:
        return SheetText("″", kind="again", hint="the same cell of ours as above")
    score = format_number(first.ours.value, first.printed.printed)
    if first.gate:
        return SheetText(first.gate, kind="gated", hint=f"score {score}")
    small = f"({place.our_rank})" if place.our_rank else ""
    if first.is_dense or math.isnan(first.our_kept):
        return SheetText(score, small, kind="score")
    return SheetText(_kept_text(first.our_kept, first), small, hint=f"score {score}")


def _kept_text(kept: float, number: ComparedNumber) -> str:
    form = kept_as(number.printed.at["metric"])
    if form == "share":
        return f"{100 * kept:.0f} %"
    if form == "nats":
        return f"{kept:+.3f}".replace("-", "−")
    return format_number(kept, number.printed.printed)


def score_lines(table: PaperTable, row: MergedRow) -> Iterator[SheetLine]:
    """Our scores with their intervals; with the paper's own model between its numbers and the difference."""
    heads = row_heads(table, row.rows)
    found: list[tuple[LineKind, tuple[SheetText, ...]]] = []
    if table.same_model and table.has_printed:
        found.append(("paper", tuple(printed_cell(next(iter(place.printed[0]), None)) for place in row.places)))
    found.append(("ours", tuple(_score_cell(place) for place in row.places)))
    if table.same_model and table.has_printed:
        found.append(("difference", tuple(_difference_cell(place) for place in row.places)))
    for position, (kind, cells) in enumerate(found):
        yield SheetLine(kind, kind, heads, cells, position == 0, len(found))


def printed_cell(number: ComparedNumber | None) -> SheetText:
    """A number as printed."""
    if number is None:
        return SheetText("")
    text = number.printed.printed or ("lost" if number.printed.flag == "lost" else "–")
    return SheetText(text, rank=number.rank, note=number.note, hint=number.printed.flag_reason)


def _score_cell(place: MergedPlace) -> SheetText:
    first = place.first
    if first is None:
        return SheetText("")
    own, digits = first.ours, first.printed.printed
    if own is None:
        return SheetText("–", hint=first.reason)
    if place.again:
        return SheetText("″", kind="again", hint="the same cell of ours as above")
    interval = "" if math.isnan(own.low) else f"[{format_number(own.low, digits)}, {format_number(own.high, digits)}]"
    hint = f"{own.n} samples" + (f"; {first.gate}" if first.gate else "")
    return SheetText(format_number(own.value, digits), interval, hint=hint, kind="gated" if first.gate else "")


def _difference_cell(place: MergedPlace) -> SheetText:
    first = place.first
    if first is None or first.ours is None or not first.is_printed:
        return SheetText("")
    text = format_number(first.ours.value - first.printed.value, first.printed.printed)
    return SheetText((("" if text.startswith("-") else "+") + text).replace("-", "−"))


def format_number(value: float, printed: str = "") -> str:
    """With as many decimals as the printed number has; else three significant digits, at least two decimals."""
    if math.isnan(value):
        return "–"
    digits = len(printed.partition(".")[2]) if printed and "e" not in printed else None
    if digits is None:
        digits = 2 if abs(value) >= 0.1 or value == 0 else min(8, 1 - math.floor(math.log10(abs(value))) + 1)
    if printed and value and abs(value) < 10**-digits:
        return f"{value:.2g}"
    return f"{value:.{digits}f}"
