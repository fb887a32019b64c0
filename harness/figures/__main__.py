"""``python -m harness.figures paper=keydiff scale=mini``: the diagnostics that a paper's figures and tables show.

What is stored already is not computed again. ``paper=all`` is every paper, ``item=figure_4`` one figure of one;
``draw=<folder>`` also writes every figure there as SVG and PNG. All other settings are those of ``python -m harness``
(``model=…``, ``results_dir=…``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UserError
from harness.figures.catalogue import FIGURES, TABLES
from harness.figures.gallery import place
from harness.figures.measure import measure
from harness.figures.points import SCALES, experiment
from harness.plain_words import errors_in_plain_words
from harness.published import PAPERS
from harness.store import Store, load_rows
from harness.terminal import say
from policies import nearest

ALL = "all"
OWN = {"paper": "", "item": "", "scale": "mini", "draw": ""}


def main() -> None:
    """Exit code 0 = done, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Diagnose what is missing, then draw where that is asked for. Raises the errors of `harness.errors.MENDABLE`."""
    own = dict(OWN)
    others = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise UserError(f"'{argument}' is no setting: write python -m harness.figures paper=keydiff scale=mini.")
        if name in own:
            own[name] = value
        else:
            others.append(argument)
    if not own["paper"]:
        raise UserError(f"Say which paper's figures are meant: paper={PAPERS[0]}, or paper=all for every one.")
    if own["paper"] not in (*PAPERS, ALL):
        raise UserError(f"There is no paper called '{own['paper']}'. {nearest(own['paper'], (*PAPERS, ALL))}")
    if own["scale"] not in SCALES:
        raise UserError(f"There is no scale called '{own['scale']}'. {nearest(own['scale'], SCALES)}")
    if own["paper"] == ALL and (own["item"] or own["draw"]):
        raise UserError("item= and draw= are about one paper: say which, paper=keydiff for example.")
    computed = 0
    for paper in PAPERS if own["paper"] == ALL else [own["paper"]]:
        computed += measure(paper, _chosen(paper, own["item"]), own["scale"], others)
    say(f"{computed} samples diagnosed; all others were there already.")
    if own["draw"]:
        figures = [item for item in _chosen(own["paper"], own["item"]) if (own["paper"], item) in FIGURES]
        _draw(own["paper"], figures, Path(own["draw"]), _results_dir(others))


def _chosen(paper: str, item: str) -> list[str]:
    """The figures and tables of a paper that show the inside of a model, or the one that is asked for."""
    listed = {experiment(name): name for named, name in (*FIGURES, *TABLES) if named == paper}
    if item and item not in listed:
        raise UserError(f"{paper} has no figure called '{item}'. {nearest(item, listed)}")
    return [listed[item]] if item else list(listed.values())


def _results_dir(others: Sequence[str]) -> Path:
    given = [value for name, _, value in (each.partition("=") for each in others) if name == "results_dir"]
    return Path(given[-1] if given else "results")


def _draw(paper: str, chosen: Sequence[str], folder: Path, results_dir: Path) -> None:
    """One SVG and one PNG a figure; what cannot be drawn is said."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, store = load_rows(results_dir), Store(results_dir / "runs")
    for item in chosen:
        found = place(paper, item, rows, store)
        if found.drawing is None:
            say(f"{item}: not drawn. {found.reason}")
            continue
        (folder / f"{experiment(item)}.svg").write_text(found.drawing.svg, encoding="utf-8")
        (folder / f"{experiment(item)}.png").write_bytes(found.drawing.png)
        say(f"{item}: {found.drawing.caption}")


if __name__ == "__main__":
    main()
