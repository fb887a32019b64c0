"""``python -m harness claims paper=keydiff``: the verdict on every claim of a paper, from the rows at hand.

The last column says what was found in one sentence; the whole evidence is on the page of ``python -m harness report``.
``results_dir=<folder>`` reads other rows. ``scale=full`` tests at the paper's own models, budgets and blocks; at
``scale=mini`` the testbed stands for them. Without ``paper=`` all five papers are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.markup import escape
from rich.table import Table

from harness.cli.arguments import check_choice, check_results_dir, parse
from harness.console import console, say
from harness.papers.cell_index import CellIndex
from harness.papers.claim_counts import count_claims, outcome_label
from harness.papers.claim_ledger import claims
from harness.papers.claim_measurements import Measurements
from harness.papers.claim_verdicts import Verdict, verdicts
from harness.papers.published import PAPERS, Scale
from harness.store.loading import load_rows
from harness.store.store import Store

_COLOURS = {
    "reproduced": "green", "not reproduced": "red", "inconclusive": "yellow", "no contrast": "dim",
    "not comparable": "dim",
}  # fmt: skip


@dataclass
class ClaimsSettings:
    """``paper``: one of them, or empty for all five."""

    paper: str = ""
    scale: str = "mini"
    results_dir: str = "results"


def main(words: Sequence[str]) -> None:
    """Print one table per paper. Raises `UserError` for an unknown setting, paper, scale or folder."""
    given = parse(ClaimsSettings, words, "claims", __doc__)
    scale: Scale = check_choice("scale", given.scale, get_args(Scale))
    check_results_dir(given.results_dir)
    asked = {paper: claims(paper) for paper in ([given.paper] if given.paper else PAPERS)}
    rows = load_rows(given.results_dir)
    if rows.empty:
        say(f"There are no rows under {given.results_dir}/runs: run an experiment, `python -m harness list exps`.")
    index = CellIndex(rows)
    results = Path(given.results_dir)
    beside = Measurements(results, rows, Store(results / "runs"), scale)
    found = {paper: verdicts(of_paper, index, scale, beside) for paper, of_paper in asked.items()}
    if scale == "mini":
        say(
            "scale=mini: the testbed stands in for the papers' models, and no verdict says anything of them. "
            "`python -m harness report` writes what stands in for what, claim by claim."
        )
    for paper, of_paper in found.items():
        _show(paper, of_paper)
    if len(found) > 1:
        say(f"All papers: {count_claims([each for of_paper in found.values() for each in of_paper]).short_sentence}")


def _show(paper: str, found: Sequence[Verdict]) -> None:
    counts = count_claims(found)
    say(f"{paper}: {', '.join(f'{count} {outcome}' for outcome, count in counts.by_outcome.items())}")
    say(counts.sentence)
    table = Table(show_lines=True)
    for column, share in (("claim", 3), ("verdict", 2), ("what was found", 5)):
        table.add_column(column, overflow="fold", ratio=share)
    for each in found:
        verdict = outcome_label(each.outcome, each.lean)
        finding = each.sentence or each.reason
        if each.same_as:
            finding = f"The same comparison as {each.same_as} on this model. {finding}"
        table.add_row(
            f"{each.claim.id}: {escape(each.claim.text)}",
            f"[{_COLOURS[each.outcome]}]{verdict}[/]",
            escape(finding),
        )
    console.print(table)
