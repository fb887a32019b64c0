"""``python -m harness figures paper=keydiff scale=mini``: the diagnostics that a paper's figures and tables show.

What is stored is not computed again. ``paper=all`` is every paper, ``paper=ours`` what no paper draws,
``item=figure_4`` one figure; ``draw=<folder>`` also draws every figure there as SVG and PNG. All other settings are
those of ``python -m harness run`` (``model=…``, ``results_dir=…``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli.arguments import check_choice, parse_known
from harness.console import say
from harness.errors import UserError
from harness.papers.figure_diagnostics import diagnose_items
from harness.papers.figures.figure_cells import SCALES, experiment_name
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.figures.figure_index import FIGURES, OUR_FIGURES, TABLES, figure_or_reason, our_figure_or_reason
from harness.papers.published import OURS, PAPERS, Scale
from harness.store.loading import load_rows
from harness.store.store import Store
from policies import nearest

ALL = "all"


@dataclass
class FigureSettings:
    """``item``: one figure of the paper; ``draw``: the folder to draw into, none where it is empty."""

    paper: str = ""
    item: str = ""
    scale: str = "mini"
    draw: str = ""


def main(words: Sequence[str]) -> None:
    """Diagnose what is missing, then draw where that is asked for. Raises the errors of `USER_ERRORS`."""
    own, others = parse_known(FigureSettings, words, "figures", __doc__)
    if not own.paper:
        raise UserError(f"Say which paper's figures are meant: paper={PAPERS[0]}, or paper=all for every one.")
    check_choice("paper", own.paper, (*PAPERS, OURS, ALL))
    scale: Scale = check_choice("scale", own.scale, SCALES)
    if own.paper == ALL and (own.item or own.draw):
        raise UserError("item= and draw= are about one paper: say which, paper=keydiff for example.")
    computed = 0
    for paper in PAPERS if own.paper == ALL else [own.paper]:
        computed += diagnose_items(paper, _chosen(paper, own.item), scale, others)
    say(f"{computed} samples diagnosed; all others were there already.")
    if own.draw:
        figures = [item for item in _chosen(own.paper, own.item) if own.paper == OURS or (own.paper, item) in FIGURES]
        _draw(own.paper, figures, scale, Path(own.draw), _results_dir(others))


def _chosen(paper: str, item: str) -> list[str]:
    """The figures and tables of a paper that show the inside of a model, or the one that is asked for."""
    if paper == OURS:
        listed = {plan.rows_of: name for name, plan in OUR_FIGURES.items()}
    else:
        listed = {experiment_name(name): name for named, name in (*FIGURES, *TABLES) if named == paper}
    if item and item not in listed:
        raise UserError(f"{paper} has no figure called '{item}'. {nearest(item, listed)}")
    return [listed[item]] if item else list(listed.values())


def _results_dir(others: Sequence[str]) -> Path:
    given = [value for name, _, value in (each.partition("=") for each in others) if name == "results_dir"]
    return Path(given[-1] if given else "results")


def _draw(paper: str, chosen: Sequence[str], scale: Scale, folder: Path, results_dir: Path) -> None:
    """One SVG and one PNG a figure; what cannot be drawn is said."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = FigureDataOfItems(load_rows(results_dir), Store(results_dir / "runs"), scale)
    for item in chosen:
        found = our_figure_or_reason(item, stored) if paper == OURS else figure_or_reason(paper, item, stored)
        if found.drawing is None:
            say(f"{item}: not drawn. {found.reason}")
            continue
        (folder / f"{experiment_name(item)}.svg").write_text(found.drawing.svg, encoding="utf-8")
        (folder / f"{experiment_name(item)}.png").write_bytes(found.drawing.png)
        say(f"{item}: {found.drawing.caption}")
