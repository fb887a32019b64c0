"""From a results folder to a folder of pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import jinja2
from markupsafe import Markup

from harness.atomic_files import write_atomically
from harness.errors import UserError
from harness.papers.claim_verdicts import Outcome
from harness.papers.published import PAPERS, Scale
from harness.report.looks import Look
from harness.report.quality_plot import swatch
from harness.report.run_facts import headline, invalid_table, sources
from harness.report.svg import colour_property, colour_rules
from harness.site import cell_pages, table_pages
from harness.site.contents import SiteContents
from harness.site.survivor_viewer import SurvivorSample, survivor_samples
from harness.site.table_pages import all_verdicts, claims_page, verdict_counts
from harness.store import cell_folders
from harness.store.loading import load_rows

HERE = Path(__file__).parent
SCRIPTS = ("table.js", "viewer.js")
PAGES = ("cells", "survivors", "reports")  # folders that are made anew


def build(results_dir: Path, to: Path, scale: Scale | None) -> int:
    """Write the site of a results folder to ``to`` and return its number of pages.

    ``scale``: how claims are read (`harness.papers.claim_verdicts`); None for each of our models with rows. Raises
    `UserError` where there are no rows, or where no honest table can be made of them.
    """
    rows = load_rows(results_dir)
    if rows.empty:
        raise UserError(f"There are no rows under {results_dir}/runs: run a cell first, python -m harness +exp=niah.")
    try:
        contents = SiteContents.of(rows)
    except ValueError as error:
        raise UserError(str(error)) from error
    descriptions = {name: cell_folders.read_description(results_dir / "runs" / name) for name in contents.cells}
    samples, outcomes = survivor_samples(results_dir, rows), all_verdicts(rows, scale)
    site = _Site(to, contents)
    for folder in PAGES:
        shutil.rmtree(to / folder, ignore_errors=True)
    reports = _copy_reports(results_dir / "reports", to / "reports")
    site.page(
        "index.html",
        headline=headline(contents.rows, contents.labels.values()),
        broken=invalid_table(contents.broken, contents.labels),
        models=list(outcomes),
        outcomes=get_args(Outcome),
        papers=_paper_lines(contents, verdict_counts(outcomes), reports),
        others=[each for each in reports if each.parts[0] not in PAPERS],
        sources=sources(contents.rows),
        samples=samples,
    )
    site.page("leaderboard.html", table=table_pages.leaderboard_page(contents), keys=site.keys())
    site.page("ledger.html", table=table_pages.ledger_page(contents), keys=site.keys())
    site.page("claims.html", table=claims_page(outcomes), models=[each for each in outcomes if each])
    for page in cell_pages.cell_pages(contents, descriptions):
        shown_in = [each for each in samples if page.cell_id in {run.cell_id for run in each.runs}]
        site.page(f"cells/{page.cell_id}.html", "cell.html", cell=page, shown_in=shown_in)
    site.page("survivors/index.html", "survivors.html", samples=samples)
    for each in samples:
        site.page(
            f"survivors/{each.name}.html", "viewer.html", sample=each, known=set(contents.cells), **_viewer_data(each)
        )
    site.assets([*contents.style.values(), *(run.look for each in samples for run in each.runs)])
    return site.written


class _Site:
    """The folder that pages are written to, and what they share."""

    def __init__(self, to: Path, contents: SiteContents) -> None:
        self.to, self.contents, self.written = to, contents, 0
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def page(self, name: str, template: str = "", **content: Any) -> None:
        """Write one page; ``up`` leads from it to the site's root."""
        file = self.to / name
        file.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * name.count("/")
        text = self.templates.get_template(template or name).render(up=up, **content)
        write_atomically(file, text.encode(), flushed=False)  # a full disk leaves no page that is cut off
        self.written += 1

    def keys(self) -> dict[str, tuple[str, Markup]]:
        """By label: the name of its SVG symbol, and the symbol."""
        style = self.contents.style.items()
        return {label: (f"key{i}", swatch(label, look, f"key{i}")) for i, (label, look) in enumerate(style)}

    def assets(self, looks: Iterable[Look]) -> None:
        """The style sheet, with the colours of these looks, and the scripts."""
        light, dark = colour_rules(looks)
        base = (HERE.parent / "report" / "page.css").read_text(encoding="utf-8")
        own = (HERE / "site.css").read_text(encoding="utf-8")
        colours = f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        write_atomically(self.to / "site.css", (base + own + colours).encode(), flushed=False)
        for script in SCRIPTS:
            shutil.copyfile(HERE / script, self.to / script)


def _copy_reports(reports: Path, to: Path) -> list[Path]:
    """The pages of the reports that were built before, copied so that the site needs no other folder."""
    if not reports.is_dir():
        return []
    shutil.copytree(reports, to)
    pages = [*to.glob("*.html"), *to.glob("*/index.html")]
    return sorted(page.relative_to(to) for page in pages)


def _paper_lines(
    contents: SiteContents, counts: Mapping[str, Mapping[str, Mapping[str, int]]], reports: list[Path]
) -> list[tuple[str, int, Mapping[str, Mapping[str, int]], str]]:
    """By paper: how many cells are its own, its claims by model and verdict, and its report where one was built."""
    return [
        (
            paper,
            sum(paper in papers for papers in contents.papers.values()),
            counts[paper],
            next((each.as_posix() for each in reports if each.parts[0] == paper), ""),
        )
        for paper in PAPERS
    ]


def _viewer_data(sample: SurvivorSample) -> dict[str, Any]:
    """The sample's data for the script, safe inside a ``script`` element."""
    text = json.dumps(sample.data(), ensure_ascii=False, separators=(",", ":"))
    colours = [f"var({colour_property(run.look)})" for run in sample.runs]
    return {
        "colours": colours,
        "data": Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")),
    }
