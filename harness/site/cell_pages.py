"""A page per cell: what it is, what it scored, what it kept, what it answered, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.report.labels import NLL, metric_title
from harness.report.ledger_table import LEDGER_COLUMNS
from harness.report.rows import PROVENANCE
from harness.report.run_facts import readable
from harness.report.summary import difference_text, interval_text, value_text
from harness.site.contents import SiteContents, regime_text

SHOWN_SAMPLES = 20
LONGEST_ANSWER = 400  # characters


@dataclass(frozen=True)
class CellPage:
    """Everything on it is text; ``answers``: sample, scores by metric, answer, accepted answer."""

    cell_id: str
    label: str
    title: str
    labels: list[tuple[str, str]]
    scores: list[tuple[str, str, str, str, str]]  # metric, value, interval, difference to dense, samples
    ledger: list[tuple[str, str, str]]  # what, unit, number
    broken_invariants: list[str]
    metrics: list[str]
    answers: list[tuple[str, list[str], str, str]]
    samples: int
    provenance: list[tuple[str, str]]
    made_of: list[tuple[str, str]]  # title, JSON
    papers: tuple[str, ...]


def cell_pages(contents: SiteContents, descriptions: Mapping[str, Mapping[str, Any]]) -> list[CellPage]:
    """The pages of all cells. ``descriptions``: by cell id the content of ``cell.json``."""
    rows, scores = dict(list(contents.rows.groupby("cell_id"))), dict(list(contents.summary.groupby("cell_id")))
    books = {str(line["cell_id"]): line for line in contents.ledger.to_dict("records")}
    none = contents.summary.iloc[:0]
    return [
        _cell_page(contents, name, rows[name], scores.get(name, none), books[name], descriptions[name])
        for name in contents.cells
    ]


def _cell_page(
    contents: SiteContents,
    name: str,
    rows: pd.DataFrame,
    scores: pd.DataFrame,
    book: Mapping[Any, Any],
    description: Mapping[str, Any],
) -> CellPage:
    cell = contents.cells[name]
    metrics = list(dict.fromkeys(rows["metric"]))
    labels = [(each, str(cell[each])) for each in ("model", "policy", "budget")]
    labels += [("prompt regime", regime_text(cell))]
    labels += [(each, str(cell[each])) for each in ("task", "dtype", "seed")]
    shown = [part for _, part in rows.groupby("sample_id", sort=False)][:SHOWN_SAMPLES]
    return CellPage(
        cell_id=name,
        label=contents.labels[name],
        title=f"{contents.labels[name]}, budget {cell['budget']}, on {cell['task']}",
        labels=labels,
        scores=[_score_texts(line) for line in scores.to_dict("records")],
        ledger=[(column.title, column.unit, column.text(book)) for column in LEDGER_COLUMNS],
        broken_invariants=sorted(set(rows["invalid"]) - {""}),
        metrics=[sample_metric(metric) for metric in metrics],
        answers=[_answer_texts(part, metrics) for part in shown],
        samples=rows["sample_id"].nunique(),
        provenance=[(each, readable(str(cell[each])) or "not recorded") for each in PROVENANCE],
        made_of=[
            (title, json.dumps(description[key], indent=1, sort_keys=True, ensure_ascii=False))
            for key, title in (
                ("config", "Identity: what changes outputs, and nothing else"),
                ("resolved", "The whole configuration"),
                ("sources", "Files of code behind it, with the hash of each"),
            )
            if description.get(key)
        ],
        papers=contents.papers[name],
    )


def _score_texts(line: Mapping[Any, Any]) -> tuple[str, str, str, str, str]:
    metric = metric_title(str(line["metric"]))
    return metric, value_text(line), interval_text(line), difference_text(line) or "–", f"{line['n']:,}"


def _answer_texts(part: pd.DataFrame, metrics: Sequence[str]) -> tuple[str, list[str], str, str]:
    values = dict(zip(part["metric"], part["value"], strict=True))
    first = part.iloc[0]
    scores = [f"{values[metric]:.3f}" if metric in values else "–" for metric in metrics]
    return str(first["sample_id"]), scores, excerpt(str(first["prediction"])), excerpt(str(first["reference"]))


def sample_metric(metric: str) -> str:
    """What one sample's value of a metric is: for ``nll`` no perplexity, which is of many tokens of many samples."""
    return "nats per token" if metric == NLL else metric_title(metric)


def excerpt(text: str) -> str:
    """One paragraph of at most `LONGEST_ANSWER` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_ANSWER else flat[: LONGEST_ANSWER - 1] + "…"
