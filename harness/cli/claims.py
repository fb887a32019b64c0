"""``python -m harness claims paper=keydiff``: the verdict on every claim of a paper, from the rows at hand.

``results_dir=<folder>`` reads other rows. ``scale=full`` tests at the paper's own models, budgets and blocks; at
``scale=mini`` the testbed stands for them. Without ``paper=`` all five papers are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from rich.table import Table

from harness.cli.arguments import check_choice, check_results_dir, parse
from harness.console import console, say
from harness.papers.cell_index import CellIndex
from harness.papers.claim_ledger import claims
from harness.papers.claim_verdicts import Outcome, Scale, Verdict, verdicts
from harness.papers.published import PAPERS
from harness.store.loading import load_rows

_COLOURS = {"reproduced": "green", "not reproduced": "red", "inconclusive": "yellow", "not comparable": "dim"}


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
    for paper, of_paper in asked.items():
        _show(paper, verdicts(of_paper, index, scale))


def _show(paper: str, found: Sequence[Verdict]) -> None:
    counted = Counter(each.outcome for each in found)
    title = f"{paper}: " + ", ".join(f"{counted[outcome]} {outcome}" for outcome in get_args(Outcome))
    say(title)
    table = Table(show_lines=True)
    for column in ("claim", "verdict", "what was found"):
        table.add_column(column, overflow="fold")
    for each in found:
        colour = _COLOURS[each.outcome]
        table.add_row(
            f"{each.claim.id}: {each.claim.text}", f"[{colour}]{each.outcome}[/]", each.reason.replace("[", r"\[")
        )
    console.print(table)
