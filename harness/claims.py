"""``python -m harness.claims paper=keydiff``: every claim of a paper, and what became of it in the rows at hand.

``results_dir=<folder>`` reads other rows, ``scale=full`` asks for the paper's own models, budgets and blocks instead of
letting the testbed stand for them (``scale=mini``). Without ``paper=`` all five are shown.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.table import Table

from harness.errors import UserError
from harness.plain_words import errors_in_plain_words
from harness.published import PAPERS, claims
from harness.store import load_rows
from harness.terminal import console, say
from harness.verdicts import Outcome, Scale, Verdict, verdicts
from harness.verdicts.shelf import Shelf
from policies import nearest

SETTINGS = {"paper": "", "scale": "mini", "results_dir": "results"}
_COLOURS = {"reproduced": "green", "not reproduced": "red", "inconclusive": "yellow", "not comparable": "dim"}


def main() -> None:
    """Exit code 0 = shown, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Print one table per paper. Raises `UserError` for an unknown setting, paper, scale or folder."""
    settings = _settings(arguments)
    scale: Scale = "full" if settings["scale"] == "full" else "mini"
    asked = {paper: claims(paper) for paper in ([settings["paper"]] if settings["paper"] else PAPERS)}
    rows = load_rows(settings["results_dir"])
    if rows.empty:
        say(
            f"There are no rows under {settings['results_dir']}/runs: run an experiment, `python -m harness list exps`."
        )
    shelf = Shelf(rows)
    for paper, of_paper in asked.items():
        _show(paper, verdicts(of_paper, shelf, scale))


def _settings(arguments: Sequence[str]) -> dict[str, str]:
    given = dict(SETTINGS)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise UserError(f"'{argument}' is no setting: write python -m harness.claims paper=keydiff [scale=full].")
        if name not in SETTINGS:
            raise UserError(f"There is no setting '{name}'. {nearest(name, SETTINGS)}")
        given[name] = value
    if given["scale"] not in get_args(Scale):
        raise UserError(f"There is no scale called '{given['scale']}'. {nearest(given['scale'], get_args(Scale))}")
    if not Path(given["results_dir"]).is_dir():
        raise UserError(
            f"There is no folder {given['results_dir']}: give the one that was written to, results_dir=<folder>."
        )
    return given


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


if __name__ == "__main__":
    main()
