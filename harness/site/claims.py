"""The claims page: what the five papers say, and what became of it in the rows at hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import pandas as pd

from harness.published import PAPERS
from harness.published import claims as claims_of
from harness.site.tables import Column, Entry, Line, Table, filters_of, number
from harness.verdicts import Outcome, Scale, Verdict, verdicts
from harness.verdicts.shelf import Shelf

COLUMNS = (
    Column("claim"),
    Column("what the paper says"),
    Column("verdict"),
    Column("weakest case", "95 % interval", number=True),
    Column("samples", "paired", number=True),
    Column("would settle it", "samples", number=True),
    Column("what was found"),
)
TONES = {"reproduced": "better", "not reproduced": "worse", "inconclusive": "open", "not comparable": "apart"}
Found = Mapping[str, Sequence[Verdict]]


def found(rows: pd.DataFrame, scale: Scale) -> Found:
    """The verdict on every claim of every paper."""
    shelf = Shelf(rows)
    return {paper: verdicts(claims_of(paper), shelf, scale) for paper in PAPERS}


def counted(outcomes: Found) -> dict[str, dict[str, int]]:
    """By paper: how many claims have which verdict, in the order of `Outcome`."""
    counts = {paper: Counter(each.outcome for each in of_paper) for paper, of_paper in outcomes.items()}
    return {paper: {outcome: count[outcome] for outcome in get_args(Outcome)} for paper, count in counts.items()}


def claims(outcomes: Found) -> Table:
    """One line per claim."""
    lines = [_line(each) for of_paper in outcomes.values() for each in of_paper]
    titles = {"paper": "paper", "verdict": "verdict", "kind": "kind of claim"}
    return Table("claims", "claims", COLUMNS, lines, filters_of(lines, titles, {"verdict": get_args(Outcome)}))


def _line(each: Verdict) -> Line:
    claim = each.claim
    entries = [
        Entry(claim.id, small=claim.paper),
        Entry(claim.text, small=claim.source),
        Entry(each.outcome, str(list(get_args(Outcome)).index(each.outcome)), tone=TONES[each.outcome]),
        number(each.estimate, *_estimate(each)),
        number(each.n or None, f"{each.n:,}" if each.n else "–"),
        number(each.needed_samples, f"{each.needed_samples:,}" if each.needed_samples else "–"),
        Entry(each.reason),
    ]
    return Line(entries, {"paper": [claim.paper], "verdict": [each.outcome], "kind": [claim.kind]})


def _estimate(each: Verdict) -> tuple[str, str]:
    if math.isnan(each.estimate):
        return "–", ""
    low, high = each.interval
    return tuple(text.replace("-", "−") for text in (f"{each.estimate:+.3g}", f"[{low:+.3g}, {high:+.3g}]"))  # type: ignore[return-value]
