"""``python -m harness site``: the results site, a folder of pages that opens without a network.

``results_dir=<folder>`` reads other rows, ``out=<folder>`` writes elsewhere than ``<results_dir>/site``. Claims are
tested on each of our models that has rows; ``scale=full`` tests them at the papers' own models and budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from harness.cli.arguments import check_choice, check_results_dir, parse
from harness.console import say
from harness.papers.published import Scale
from harness.site.build import build


@dataclass
class SiteSettings:
    """``out``: the folder to write to, ``<results_dir>/site`` where it is empty."""

    results_dir: str = "results"
    out: str = ""
    scale: str = ""


def main(words: Sequence[str]) -> None:
    """Build and say where it is. Raises `UserError` for an unknown setting, scale or folder."""
    given = parse(SiteSettings, words, "site", __doc__)
    scale: Scale | None = check_choice("scale", given.scale, get_args(Scale)) if given.scale else None
    results_dir = check_results_dir(given.results_dir)
    out = Path(given.out) if given.out else results_dir / "site"
    pages = build(results_dir, out, scale)
    say(f"{pages:,} pages: open {out}/index.html, or run make serve.")
