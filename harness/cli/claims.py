"""``python -m harness claims paper=keydiff``: the verdict on every claim of a paper, from the rows at hand.

The last column says what was found in one sentence; the whole evidence is on the page of ``python -m harness report``.
``results_dir=<folder>`` reads other rows. Our models that have rows stand side by side: SmolLM2-135M (``scale=small``)
and the testbed (``scale=mini``); ``scale=`` shows one of them. ``scale=full`` tests at the paper's own models, budgets
and blocks. Without ``paper=`` all five papers are shown.
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
from harness.papers.claim_places import claims_across
from harness.papers.claim_verdicts import Verdict, verdicts
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.published import FULL, PAPERS, Scale, model_of, scales_with_rows
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
    scale: str = ""
    results_dir: str = "results"


def main(words: Sequence[str]) -> None:
    """Print one table per paper. Raises `UserError` for an unknown setting, paper, scale or folder."""
    given = parse(ClaimsSettings, words, "claims", __doc__)
    asked_scale: Scale | None = check_choice("scale", given.scale, get_args(Scale)) if given.scale else None
    check_results_dir(given.results_dir)
    asked = {paper: claims(paper) for paper in ([given.paper] if given.paper else PAPERS)}
    rows = load_rows(given.results_dir)
    if rows.empty:
        say(f"There are no rows under {given.results_dir}/runs: run an experiment, `python -m harness list exps`.")
    index = CellIndex(rows)
    results = Path(given.results_dir)
    scales = [asked_scale] if asked_scale else scales_with_rows(index.models)
    store = Store(results / "runs")
    beside = {scale: Measurements(results, FigureDataOfItems(rows, store, scale)) for scale in scales}
    found = {
        (paper, scale): verdicts(of_paper, index, scale, beside[scale])
        for paper, of_paper in asked.items()
        for scale in scales
    }
    if FULL not in scales:
        names = " and ".join(f"{model_of(scale)} (scale={scale})" for scale in scales)
        say(
            f"{names} stand{'s' if len(scales) == 1 else ''} in for the papers' models, and no verdict says anything "
            "of them. `python -m harness report` writes what stands in for what, claim by claim."
        )
    for paper in asked:
        _show(paper, [(model_of(scale), found[paper, scale]) for scale in scales])
    for scale in scales if len(asked) > 1 else ():
        of_scale = [each for (_, own), of_paper in found.items() if own == scale for each in of_paper]
        say(f"All papers{_on(model_of(scale), scales)}: {count_claims(of_scale).short_sentence}")


def _on(model: str, shown: Sequence[object]) -> str:
    return f" on {model}" if len(shown) > 1 else ""


def _show(paper: str, by_model: Sequence[tuple[str, Sequence[Verdict]]]) -> None:
    """The claims of one paper: (name of a model, its verdict on each)."""
    for model, found in by_model:
        counts = count_claims(found)
        each = ", ".join(f"{count} {outcome}" for outcome, count in counts.by_outcome.items())
        say(f"{paper}{_on(model, by_model)}: {each}")
        say(counts.sentence)
    table = Table(show_lines=True)
    for column, share in (("claim", 3), ("verdict", 2), ("what was found", 5)):
        table.add_column(column, overflow="fold", ratio=share)
    for across in claims_across(by_model):
        several = len(across.found) > 1
        table.add_row(
            f"{across.claim.id}: {escape(across.claim.text)}",
            "\n".join(f"{f'{model}: ' if several else ''}{_coloured(each)}" for model, each in across.found),
            "\n".join(f"{f'{model}: ' if several else ''}{escape(_finding(each))}" for model, each in across.found),
        )
    console.print(table)


def _coloured(each: Verdict) -> str:
    return f"[{_COLOURS[each.outcome]}]{outcome_label(each.outcome, each.lean)}[/]"


def _finding(each: Verdict) -> str:
    found = each.sentence or each.reason
    return f"The same comparison as {each.same_as} on this model. {found}" if each.same_as else found
