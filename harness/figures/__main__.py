"""``python -m harness.figures paper=keydiff scale=mini``: the diagnostics that a paper's figures and tables show.

What is stored already is not computed again. ``item=figure_4`` takes one figure; ``draw=<folder>`` also writes every
figure there as SVG and PNG. All other settings are those of ``python -m harness`` (``model=…``, ``results_dir=…``).
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
    if own["paper"] not in PAPERS:
        raise UserError(f"There is no paper called '{own['paper']}'. {nearest(own['paper'], PAPERS)}")
    if own["scale"] not in SCALES:
        raise UserError(f"There is no scale called '{own['scale']}'. {nearest(own['scale'], SCALES)}")
    listed = {experiment(item): item for paper, item in (*FIGURES, *TABLES) if paper == own["paper"]}
    if own["item"] and own["item"] not in listed:
        raise UserError(f"{own['paper']} has no figure called '{own['item']}'. {nearest(own['item'], listed)}")
    chosen = [listed[own["item"]]] if own["item"] else list(listed.values())
    computed = measure(own["paper"], chosen, own["scale"], others)
    say(f"{computed} samples diagnosed; all others were there already.")
    if own["draw"]:
        figures = [item for item in chosen if (own["paper"], item) in FIGURES]
        _draw(own["paper"], figures, Path(own["draw"]), _results_dir(others))


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
