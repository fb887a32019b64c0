"""The pages of one paper, its report and the ledger of its claims: no network, readable in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from harness.papers.below_random import RandomComparison, below_random
from harness.papers.claim_counts import ClaimCounts, count_claims, outcome_label, outcome_style
from harness.papers.claim_ledger import claims
from harness.papers.claim_measurements import Measurements
from harness.papers.claim_places import ClaimAcross, ClaimPlaces, claims_across, place_claims
from harness.papers.claim_verdicts import Verdict, verdicts
from harness.papers.figures.figure_cells import KEY, figure_cells
from harness.papers.published import FULL, PAPER_TITLES, PAPERS, Scale, model_of, paper_items
from harness.papers.report_items import ReportData, ReportItem, our_items, report_items
from harness.papers.table_cells import experiment_key
from harness.papers.table_sheets import sheets_of
from harness.report.run_facts import RunSource, sources

OURS_TITLE = "Leaderboard, realised budgets and costs"
OURS_BANNER = "Comparisons of our own. Each table names its model, its samples and the machine below it."
BANNERS: dict[Scale, str] = {
    "mini": (
        "The testbed (scale=mini): a model of 5 million parameters that we trained, on tasks of its own. It shows how "
        "methods order there and what they keep of the full cache. It says nothing of the paper's models."
    ),
    "small": (
        "SmolLM2-135M (scale=small): a pretrained language model, on real text with prompts of about a thousand "
        "tokens. It shows how methods order there; the paper's models are far larger, and their prompts longer."
    ),
}


@dataclass(frozen=True)
class ScaleResults:
    """What one scale gives for one paper.

    ``commands``: the sweep, then the report. ``random``: None where nothing evicts. ``rows``: those
    of the paper's items. ``broken``: policies with cells that broke an invariant and are left out.
    """

    paper: str
    scale: Scale
    commands: tuple[str, ...]
    entries: Sequence[ReportItem]
    verdicts: Sequence[Verdict]
    rows: pd.DataFrame
    broken: tuple[str, ...] = ()
    random: RandomComparison | None = None

    @property
    def model(self) -> str:
        """The model that was measured, as a heading."""
        return model_of(self.scale) or "The paper's models"

    @property
    def banner(self) -> str:
        """What these results speak of, as a sentence."""
        if self.paper not in PAPERS:
            return OURS_BANNER
        if self.scale == FULL:
            models = sorted(set(self.rows["model"])) if not self.rows.empty else []
            return f"Rows of {', '.join(models) or 'no model'}, at the paper's own setting (scale=full)."
        return BANNERS[self.scale]

    @cached_property
    def counts(self) -> ClaimCounts:
        """How many claims have which verdict."""
        return count_claims(self.verdicts)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was measured, in a few words."""
        cells = self.rows.drop_duplicates("cell_id") if not self.rows.empty else self.rows
        if cells.empty:
            return [("rows", "none: run the sweep first")]
        counts = self.rows.drop_duplicates(["cell_id", "sample_id"]).groupby("cell_id").size()
        each = str(counts.min()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        unnamed = " (the paper names none)" if self.paper in PAPERS else ""
        days = sorted({str(day)[:10] for day in cells["created"]} - {""})
        return [
            ("model", ", ".join(sorted(set(cells["model"])))),
            ("dtype", ", ".join(sorted(set(cells["dtype"].astype(str)))) + unnamed),
            ("cells", f"{len(cells):,}"),
            ("samples", f"{each} a cell, {int(counts.sum()):,} in all"),
            ("date", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"),
        ]

    @property
    def sources(self) -> list[RunSource]:
        """Every combination of commit, versions and machine behind the rows."""
        return sources(self.rows.fillna("")) if not self.rows.empty else []


@dataclass(frozen=True)
class ItemAcross:
    """One table or figure at every scale of a page, the first of which says what it is."""

    found: tuple[tuple[ScaleResults, ReportItem], ...]

    @property
    def first(self) -> ReportItem:
        """Its name, what it shows, and the reason where no scale shows anything."""
        return self.found[0][1]

    @property
    def shown(self) -> list[tuple[ScaleResults, ReportItem]]:
        """Where there is a number, a figure or a formula of ours. Formulas and costs are of no scale and stand once."""
        own = [(scale, item) for scale, item in self.found if item.has_content]
        return [*own[:1], *(each for each in own[1:] if each[1].has_rows)]

    @property
    def lacking(self) -> list[tuple[ScaleResults, ReportItem]]:
        """Where others have something and this scale does not."""
        return [(scale, item) for scale, item in self.found if self.shown and not item.has_content]


@dataclass(frozen=True)
class PaperPage:
    """The content of both pages of a paper: what each scale gives, side by side."""

    paper: str
    parts: tuple[ScaleResults, ...]

    @property
    def title(self) -> str:
        """``KeyDiff, replicated``."""
        return f"{PAPER_TITLES[self.paper]}, replicated" if self.paper in PAPER_TITLES else OURS_TITLE

    @property
    def several(self) -> bool:
        """Whether results of several models stand beside each other."""
        return len(self.parts) > 1

    @cached_property
    def items(self) -> list[ItemAcross]:
        """Every item, in the paper's order."""
        of_items = zip(*(part.entries for part in self.parts), strict=True)
        return [ItemAcross(tuple(zip(self.parts, entries, strict=True))) for entries in of_items]

    @property
    def shown(self) -> list[ItemAcross]:
        """The items with something of ours at one scale or more."""
        return [item for item in self.items if item.shown]

    @property
    def folded(self) -> list[ItemAcross]:
        """The others: a line each, with the reason."""
        return [item for item in self.items if not item.shown]

    @cached_property
    def claims(self) -> list[ClaimAcross]:
        """Every claim with its verdicts; none where no paper makes any."""
        return claims_across([(part.model, part.verdicts) for part in self.parts])

    @cached_property
    def places(self) -> ClaimPlaces:
        """At which item each claim stands."""
        return place_claims(self.claims, [item.first.name for item in (*self.shown, *self.folded)])


def build_page(paper: str, found: Sequence[ReportData]) -> PaperPage:
    """Everything that a paper's page shows, of one scale or several."""
    return PaperPage(paper, tuple(scale_results(paper, data) for data in found))


def scale_results(paper: str, data: ReportData) -> ScaleResults:
    """What one scale gives."""
    commands = (
        f"python -m harness +exp={paper}/all scale={data.scale}",
        f"python -m harness report paper={paper} scale={data.scale}",
    )
    broken = tuple(sorted(data.index.broken))
    if paper not in PAPERS:
        board = f"python -m harness +exp=leaderboard scale={data.scale} results_dir=results/board"
        commands = (
            f"{board}; python -m harness report paper={paper} results_dir=results/board  # every policy",
            f"{commands[0]}; python -m harness report paper={paper}  # the papers' policies, other tables",
        )
        return ScaleResults(paper, data.scale, commands, list(our_items(paper, data)), (), data.rows, broken)
    found = list(report_items(paper, data))
    beside = Measurements(data.results, data.stored)
    decided = verdicts(claims(paper), data.index, data.scale, beside)
    rows = rows_of_paper(paper, data)
    compared = below_random(data.index.cells, frozenset(rows["cell_id"].astype(str))) if len(rows) else None
    return ScaleResults(paper, data.scale, commands, found, decided, rows, broken, compared)


def rows_of_paper(paper: str, data: ReportData) -> pd.DataFrame:
    """The rows of the cells that the paper's experiments list at a scale, and of the dense cells of the same tasks.

    At a scale of one of our models they are of that model, where there are any of it.
    """
    listed = paper_items(paper)
    names = listed.loc[listed["needs"] != "drawing", "item"]
    keys = {key for name in names for key in figure_cells(paper, name, data.scale).keys}
    tasks = {key[KEY.index("task")] for key in keys}
    model = model_of(data.scale)
    cells = [cell for cell in data.index.cells if model not in data.index.models or cell.model == model]
    own = {
        cell.cell_id
        for cell in cells
        if experiment_key(cell) in keys or (cell.policy == "dense" and cell.task in tasks)
    }
    return data.rows[data.rows["cell_id"].isin(own)] if own else data.rows.iloc[:0]


def render_page(page: PaperPage) -> str:
    """The report as text; the same for the same rows."""
    return _templates().get_template("paper.html").render(page=page)


def render_ledger(page: PaperPage) -> str:
    """The page of every claim with its numbers, as text."""
    return _templates().get_template("claim_ledger.html").render(page=page)


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, Path(__file__).parents[1] / "report"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sheet"] = sheets_of
    environment.filters["code"] = _with_code
    environment.filters["verdict_label"] = lambda verdict: outcome_label(verdict.outcome, verdict.lean)
    environment.filters["verdict_style"] = lambda verdict: outcome_style(verdict.outcome, verdict.lean)
    return environment


def _with_code(text: str) -> Markup:
    """Text as HTML, with `what stands between backticks` as code."""
    escaped = str(escape(text))
    parts = escaped.split("`")
    if len(parts) % 2 == 0:  # a backtick is alone
        return Markup(escaped)
    return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))
