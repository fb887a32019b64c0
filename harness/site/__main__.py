"""``python -m harness.site``: a folder of pages over everything in a results folder, to be opened without a network.

``results=<folder>`` reads other rows, ``to=<folder>`` writes elsewhere than ``<results>/site``, ``scale=full``
reads the papers' claims at the papers' own models and budgets (`python -m harness.claims`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from harness.errors import UserError
from harness.plain_words import errors_in_plain_words
from harness.site.build import build
from harness.terminal import say
from harness.verdicts import Scale
from policies import nearest

SETTINGS = {"results": "results", "to": "", "scale": "mini"}


def main() -> None:
    """Exit code 0 = built, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Build and say where it is. Raises `UserError` for an unknown setting, scale or folder."""
    given = dict(SETTINGS)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise UserError(f"'{argument}' is no setting: write python -m harness.site [results=results].")
        if name not in SETTINGS:
            raise UserError(f"There is no setting '{name}'. {nearest(name, SETTINGS)}")
        given[name] = value
    if given["scale"] not in get_args(Scale):
        raise UserError(f"There is no scale called '{given['scale']}'. {nearest(given['scale'], get_args(Scale))}")
    results_dir = Path(given["results"])
    if not results_dir.is_dir():
        raise UserError(f"There is no folder {results_dir}: give the one that was written to, results=<folder>.")
    to = Path(given["to"]) if given["to"] else results_dir / "site"
    scale: Scale = "full" if given["scale"] == "full" else "mini"
    pages = build(results_dir, to, scale)
    say(f"{pages:,} pages: open {to}/index.html, or run make serve.")


if __name__ == "__main__":
    main()
