"""The papers' tables as one tidy frame, a row for each printed number, suspect ones marked."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from harness.published.names import labels, model, presets
from harness.published.places import PAPERS, cells_as_text, known_paper

# Why a number is not to be compared as it stands; `flag_reason` says it in words and names the finding of AUDIT.md.
FLAGS = {
    "wrong_average": "not the mean of the cells beside it",
    "duplicated": "the same digits as another row or cell",
    "mislabelled": "the caption names another setting than the numbers",
    "other_protocol": "made under another protocol than its neighbours",
    "disagrees": "another table or paper prints another number for the same thing",
    "implausible": "readable, but cannot well be right",
    "misprint": "a sign or digit is missing",
    "misread": "the text may have been misread",
    "lost": "not in the text",
}


@dataclass(frozen=True)
class Table:
    """One table of a paper; ``cells`` has the columns of `frame`."""

    paper: str
    name: str
    cells: pd.DataFrame


def tables(paper: str) -> list[Table]:
    """Every printed table of a paper, in the order of the file. Raises `UserError` for an unknown paper."""
    return [Table(paper, str(name), cells) for name, cells in frame(paper).groupby("table", sort=False)]


def frame(paper: str | None = None) -> pd.DataFrame:
    """All printed numbers of one paper, or of the five.

    Columns: ``paper``, ``table``; ``model``, ``method``, ``task`` in the paper's words (lower case) and ``our_model``,
    ``policy`` (the preset), ``our_task`` (label, or labels joined by ", " for an average) in ours, empty where there is
    no counterpart; ``budget`` with ``budget_unit`` (tokens, percent, none), ``block_size`` ("128", "inf", ""),
    ``metric``, ``value`` (float, NaN where the text lost it), ``printed`` (the digits as they stand), ``unit``,
    ``higher_is_better`` ("true", "false", ""), ``note`` (settings and remarks), ``flag`` (`FLAGS`, or empty) and
    ``flag_reason``. LongBench scores are in points of 100, ours in [0, 1].

    Raises `UserError` for an unknown paper.
    """
    papers = PAPERS if paper is None else (known_paper(paper),)
    out = pd.concat([cells_as_text(f"{each}.csv") for each in papers], ignore_index=True)
    out["printed"] = out["value"]
    out["value"] = pd.to_numeric(out["value"].where(out["value"] != "", None))
    out["our_model"] = out["model"].map(model)
    out["policy"] = [
        next(iter(presets(*key)), "") for key in zip(out["paper"], out["method"], out["note"], strict=True)
    ]
    out["our_task"] = [", ".join(labels(*key)) for key in zip(out["paper"], out["task"], strict=True)]
    return out


def items(paper: str | None = None) -> pd.DataFrame:
    """Every table and figure of one paper, or of the five: what it shows, and what is needed to draw it again.

    Columns ``paper``, ``item`` ("Table 1", "Figure 8a"), ``shows``, ``layout``, ``data_needed``, ``needs`` (scores,
    internals, speed, data, analytic, drawing) and ``printed``. Raises `UserError` for an unknown paper.
    """
    found = cells_as_text("items.csv")
    return found.copy() if paper is None else found[found["paper"] == known_paper(paper)].reset_index(drop=True)
