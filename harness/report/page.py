"""One self-contained HTML page from rows: no network, no other files, readable in light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from harness.report.colours import Look, looks
from harness.report.facts import examples, headline, sources
from harness.report.grid import LEDGER_HEADINGS, Grid, grids, ledgers
from harness.report.heatmap import AXES, colour_stops, has_axes, heatmap
from harness.report.ledger import _ledger
from harness.report.names import NLL, context_title, ordered_policies, policy_labels, shown_context
from harness.report.quality import quality_figure, swatch
from harness.report.rows import CONTEXT, checked, invalid_rows, valid_rows
from harness.report.summary import PANEL, _summarise
from harness.report.svg import colour_rules


@dataclass(frozen=True)
class Multiples:
    """Heatmaps of one task and metric: a row per policy, a column per budget."""

    context: str
    task: str
    metric: str
    samples: int
    budgets: list[str]
    dense: Markup | None
    rows: list[tuple[str, list[Markup | None]]]


def write_report(rows: pd.DataFrame, path: Path, title: str, notes: Sequence[str] = ()) -> None:
    """Write the page for ``rows`` (docs/design/rows.md, samples joined with their cells) to ``path``.

    Cells with an invalid row are listed and left out of every number. Raises ValueError for rows that are empty,
    incomplete or counted twice.
    """
    page = render(rows, title, notes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def render(rows: pd.DataFrame, title: str, notes: Sequence[str] = ()) -> str:
    """The page as text."""
    accepted = checked(rows)
    valid, broken = valid_rows(accepted), invalid_rows(accepted)
    labels = policy_labels(accepted)
    style = looks(labels.values())
    summary, ledger = _summarise(valid, labels), _ledger(accepted)
    shown = shown_context(accepted)
    tables = list(grids(summary, ledger, shown))
    light, dark = colour_rules(style.values())
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=title,
        notes=list(notes),
        colours_light=light,
        colours_dark=dark,
        headline=headline(accepted, labels.values()),
        broken=_broken(broken, labels),
        struck=broken["cell_id"].nunique(),
        tables=tables,
        keys={label: swatch(label, look, f"key{i}") for i, (label, look) in enumerate(style.items())},
        policies=[label for label in ordered_policies(labels.values()) if label in set(summary["label"])],
        panels=_panels(tables, style),
        multiples=list(_multiples(valid, labels, shown)),
        colour_stops=colour_stops(),
        ledgers=list(ledgers(ledger, shown)),
        ledger_headings=LEDGER_HEADINGS,
        examples=list(examples(valid, labels)),
        sources=sources(accepted),
        cells=_cells(accepted, labels),
    )


def _panels(tables: Sequence[Grid], style: Mapping[str, Look]) -> list[tuple[Grid, Markup]]:
    drawn = (
        (table, quality_figure(table.panel, {k: style[k] for k in table.panel["label"]}, f"quality{i}"))
        for i, table in enumerate(tables)
    )
    return [(table, figure) for table, figure in drawn if figure is not None]


def _multiples(valid: pd.DataFrame, labels: Mapping[str, str], shown: tuple[str, ...]) -> Iterator[Multiples]:
    for number, (key, part) in enumerate(valid.groupby(list(PANEL), sort=False)):
        context = dict(zip(PANEL, key, strict=True))
        if context["metric"] == NLL or not has_axes(part) or not part["value"].between(0, 1).all():
            continue
        lengths, depths = (sorted(part[name].unique()) for name in AXES)
        drawn = {
            (labels[str(cell)], str(own["budget"].iloc[0]), bool(own["dense"].iloc[0])): heatmap(
                own,
                lengths,
                depths,
                f"{labels[str(cell)]}, budget {own['budget'].iloc[0]}",
                f"heat{number}-{place}",
            )
            for place, (cell, own) in enumerate(part.groupby("cell_id", sort=False))
        }
        yield _arranged(drawn, context, context_title(context, shown), part)
