"""RULER's scores: references that occur in the prediction. HashEvict uses the same code."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x1f]")


def string_match_all(prediction: str, references: Sequence[str]) -> float:
    """The share of references contained in the prediction, in any case and without word boundaries."""
    said = prediction.lower()
    return sum(reference.lower() in said for reference in references) / len(references)


def string_match_part(prediction: str, references: Sequence[str]) -> float:
    """1 if any reference is contained in the prediction, as in `string_match_all`."""
    said = prediction.lower()
    return float(any(reference.lower() in said for reference in references))


def postprocessed(prediction: str) -> str:
    """What RULER scores of a prediction: stripped, control characters as newlines, stripped again."""
    return _CONTROL.sub("\n", prediction.strip()).strip()
