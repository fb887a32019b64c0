"""ROUGE as Google's package ``rouge-score`` defines it: lower case, words of letters and digits, clipped counts.

Used by HashEvict (through ``evaluate``) and by the needle scores; its values do not compare with those of
`tasks.metrics.rouge`. The package itself computes them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from tasks.base import TaskError
from tasks.checks import nearest
from tasks.metrics.packages import package

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class GoogleRouge(NamedTuple):
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    precision: float
    recall: float
    f: float


def rouge_scores(
    prediction: str, reference: str, kinds: tuple[str, ...] = KINDS, stemmer: bool = False
) -> dict[str, GoogleRouge]:
    """Each of ``kinds`` for one pair; sentences of ``rougeLsum`` end at newlines.

    Raises `TaskError` for a kind that is not in `KINDS`, and where the package rouge-score is not installed.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise TaskError(f"There is no ROUGE '{kind}'. {nearest(kind, KINDS)}")
    scores = _scorer(tuple(kinds), stemmer).score(reference, prediction)
    return {
        kind: GoogleRouge(float(score.precision), float(score.recall), float(score.fmeasure))
        for kind, score in scores.items()
    }


@lru_cache
def _scorer(kinds: tuple[str, ...], stemmer: bool) -> Any:
    module = package("rouge_score.rouge_scorer", "rouge-score", "Google's ROUGE")
    return module.RougeScorer(list(kinds), use_stemmer=stemmer)
