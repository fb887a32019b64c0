"""Where the published numbers lie, and which papers there are."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from harness.errors import UserError
from policies import nearest

FOLDER = Path(__file__).parents[2] / "results" / "published"
PAPERS = ("keydiff", "caote", "buzz", "hashevict", "kvec")


def known_paper(paper: str) -> str:
    """The paper itself; `UserError` for one that is not among the five."""
    if paper not in PAPERS:
        raise UserError(f"There is no paper called '{paper}'. {nearest(paper, PAPERS)}")
    return paper


@cache
def cells_as_text(file: str) -> pd.DataFrame:
    """A CSV of the folder with every cell as text, as printed; an empty cell is an empty text."""
    return pd.read_csv(FOLDER / file, dtype=str, keep_default_na=False)


@cache
def names() -> dict[str, Any]:
    """``names.yaml``: what the papers' models, methods, tasks and metrics are called here."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "names.yaml").read_text())
    return found
