"""One self-contained HTML page from rows: no network, no other files, readable in light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from harness.report.findings import MOST, findings
from harness.report.heatmap import colour_stops, heatmap_grids
from harness.report.labels import budget_title, ordered_policies, policy_labels, shown_context
from harness.report.ledger_table import ledger_columns, ledger_grids, ledger_lines
from harness.report.looks import Look, is_baseline, looks
from harness.report.quality_plot import quality_figure, swatch
from harness.report.rows import checked_rows, invalid_rows, valid_rows
from harness.report.run_facts import cell_table, examples, headline, invalid_table, sources, task_notes
from harness.report.summary import averages, summarise
from harness.report.summary_tables import SummaryGrid, summary_grids
from harness.report.svg import colour_rules


def write_report(rows: pd.DataFrame, path: Path, title: str, notes: Sequence[str] = ()) -> None:
    """Write the page for ``rows`` (docs/design/rows.md: samples joined with their cells) to ``path``.

    Cells with an invalid row are listed and left out of every number. Raises ValueError, with a sentence, for
    rows that are empty, incomplete or counted twice.
    """
    page = render(rows, title, notes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def render(rows: pd.DataFrame, title: str, notes: Sequence[str] = ()) -> str:
    """The page as text."""
    accepted = checked_rows(rows)
    valid, broken = valid_rows(accepted), invalid_rows(accepted)
    labels = policy_labels(accepted)
    style = looks(labels.values())
    summary, ledger = summarise(valid, labels), ledger_lines(accepted, labels)
    shown = shown_context(accepted)
    tables = list(summary_grids(summary, ledger, shown))
    light, dark = colour_rules(style.values())
    found = findings(summary)
    return _template().render(
        title=title,
        findings=found[:MOST],
        further=max(0, len(found) - MOST),
        notes=[*task_notes(accepted), *notes],
        colours_light=light,
        colours_dark=dark,
        keys={label: (f"key{i}", swatch(label, look, f"key{i}")) for i, (label, look) in enumerate(style.items())},
        headline=headline(accepted, labels.values()),
        broken=invalid_table(broken, labels),
        struck=broken["cell_id"].nunique(),
        tables=tables,
        averages=list(averages(summary, shown)),
        panels=_panels(tables, style),
        is_reference=is_baseline,
        budget_title=budget_title,
        references=bool(summary["reference"].any()),
        policies=ordered_policies(summary[~summary["dense"].astype(bool)]["label"]),
        multiples=list(heatmap_grids(valid, summary, ledger, labels, shown)),
        colour_stops=colour_stops(),
        ledgers=list(ledger_grids(ledger, shown)),
        ledger_columns=ledger_columns(ledger),
        examples=list(examples(valid, labels)),
        sources=sources(accepted),
        cells=cell_table(accepted, labels),
    )


def _panels(tables: Sequence[SummaryGrid], style: Mapping[str, Look]) -> list[tuple[SummaryGrid, Markup]]:
    drawn = ((table, quality_figure(table.panel, style, f"quality{i}")) for i, table in enumerate(tables))
    return [(table, figure) for table, figure in drawn if figure is not None]


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
