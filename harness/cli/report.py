"""``python -m harness report paper=keydiff``: a paper's tables, figures and claims beside ours, in one folder.

``paper=all`` writes the report of every paper, ``paper=ours`` the comparisons that no paper makes.
``results_dir=<folder>`` reads other rows, ``out=<folder>`` writes elsewhere than ``<results_dir>/reports``. Our models
that have rows stand side by side: SmolLM2-135M (``scale=small``) and the testbed (``scale=mini``); ``scale=`` shows one
of them. At ``scale=full`` nothing is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from harness.cli.arguments import check_choice, check_results_dir, parse
from harness.console import say
from harness.errors import UserError
from harness.papers.paper_report import write_reports
from harness.papers.published import OURS, PAPERS, Scale


@dataclass
class ReportSettings:
    """``out``: the folder to write to, ``<results_dir>/reports`` where it is empty."""

    paper: str = ""
    scale: str = ""
    results_dir: str = "results"
    out: str = ""


def main(words: Sequence[str]) -> None:
    """Write the reports that are asked for. Raises `UserError` for an unknown setting, paper, scale or folder."""
    given = parse(ReportSettings, words, "report", __doc__)
    if not given.paper:
        raise UserError(f"Say which paper the report is of: paper={PAPERS[0]}, or paper=all for every one.")
    check_choice("paper", given.paper, (*PAPERS, OURS, "all"))
    scale: Scale | None = check_choice("scale", given.scale, get_args(Scale)) if given.scale else None
    results = check_results_dir(given.results_dir)
    asked = [*PAPERS, OURS] if given.paper == "all" else [given.paper]
    out = Path(given.out) if given.out else results / "reports"
    say(f"Reading {results}, then a page each of {', '.join(asked)}: minutes where there are thousands of cells.")
    for path, written in write_reports(asked, results, scale, out):
        say(f"Report: {path}{'' if written else ' (as it was: nothing has changed that it is made from)'}")
