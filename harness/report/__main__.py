"""``python -m harness.report paper=keydiff``: a paper's tables, figures and claims beside ours, as one folder.

``paper=all`` writes every paper's and ``paper=ours`` what only we show. ``results=<folder>`` reads other rows,
``out=<folder>`` writes elsewhere than ``<results>/reports``. ``scale=mini`` (the testbed stands for the paper's models)
or ``scale=full`` (nothing stands for anything).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from harness.errors import UserError
from harness.paper_report.report import OURS, reported
from harness.plain_words import errors_in_plain_words
from harness.published import PAPERS
from harness.terminal import say
from harness.verdicts import Scale
from policies import nearest

SETTINGS = {"paper": "", "scale": "mini", "results": "results", "out": ""}


def main() -> None:
    """Exit code 0 = written, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Write the reports that are asked for. Raises `UserError` for an unknown setting, paper, scale or folder."""
    given = _settings(arguments)
    asked = [*PAPERS, OURS] if given["paper"] == "all" else [given["paper"]]
    scale: Scale = "full" if given["scale"] == "full" else "mini"
    results = Path(given["results"])
    out = Path(given["out"]) if given["out"] else results / "reports"
    for path, written in reported(asked, results, scale, out):
        say(f"Report: {path}{'' if written else ' (as it was: nothing has changed that it is made from)'}")


def _settings(arguments: Sequence[str]) -> dict[str, str]:
    given = dict(SETTINGS)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise UserError(f"'{argument}' is no setting: write python -m harness.report paper=keydiff [scale=full].")
        if name not in SETTINGS:
            raise UserError(f"There is no setting '{name}'. {nearest(name, SETTINGS)}")
        given[name] = value
    papers = (*PAPERS, OURS, "all")
    if not given["paper"]:
        raise UserError(f"Say which paper the report is of: paper={PAPERS[0]}, or paper=all for every one.")
    if given["paper"] not in papers:
        raise UserError(f"There is no paper called '{given['paper']}'. {nearest(given['paper'], papers)}")
    if given["scale"] not in get_args(Scale):
        raise UserError(f"There is no scale called '{given['scale']}'. {nearest(given['scale'], get_args(Scale))}")
    if not Path(given["results"]).is_dir():
        raise UserError(f"There is no folder {given['results']}: give the one that was written to, results=<folder>.")
    return given


if __name__ == "__main__":
    main()
