"""Right or wrong short answers: exact match, contained strings (RULER, HashEvict), final numbers (GSM8K).

`normalised`, the English normal form, is shared with LongBench's scores.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ANY_NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = tuple(re.compile(pattern) for pattern in (r",", r"\$", r"(?s).*#### ", r"\.$"))  # in this order


def normalised(text: str) -> str:
    """SQuAD's normal form: lower case, no ASCII punctuation, no articles, single spaces.

    In this order, so that ``state-of-the-art`` becomes one word and keeps its ``the``; curly quotes and dashes stay.
    Source: LongBench ``metrics.py`` and lost-in-the-middle ``metrics.py``, which agree.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Iterable[str]) -> float:
    """1 if the prediction is one of the answers, apart from case and blanks around it.

    Source: BUZZ's released code (tasks.md 6.2), which compares with the first answer only: pass one.
    """
    answer = prediction.strip().lower()
    return float(any(answer == gold.strip().lower() for gold in golds))


def best_subspan_em(prediction: str, golds: Iterable[str]) -> float:
    """1 if the first line of the prediction contains an answer, both `normalised`.

    The first line is what stands before the first newline, even if that is nothing: a task strips its predictions
    first, as the official generation script does. There are no word boundaries, and an answer that normalises to
    nothing is always contained. Source: lost-in-the-middle, ``evaluate_qa_responses.py`` and ``metrics.py``.
    """
    answer = normalised(prediction.partition("\n")[0].strip())
    return float(any(normalised(gold) in answer for gold in golds))


def string_match_all(prediction: str, references: Sequence[str]) -> float:
    """The share of references contained in the prediction, in any case and without word boundaries: RULER's score."""
    answer = prediction.lower()
    return sum(reference.lower() in answer for reference in references) / len(references)


def string_match_part(prediction: str, references: Sequence[str]) -> float:
    """1 if any reference is contained in the prediction, as in `string_match_all`."""
    answer = prediction.lower()
    return float(any(reference.lower() in answer for reference in references))


def postprocessed(prediction: str) -> str:
    """A prediction as RULER scores it: stripped, control characters as newlines, stripped again."""
    return _CONTROL.sub("\n", prediction.strip()).strip()


def gsm8k_flexible(prediction: str, gold: str) -> float:
    """1 if the last number anywhere is the gold one: ``flexible-extract`` of lm-evaluation-harness, gsm8k 3.0.

    Commas, dollar signs and one final full stop are ignored; ``18.0`` is not ``18``. ``gold`` is the number or
    the whole reference solution.
    """
    answer = last_number(prediction)
    return float(answer is not None and _plain(answer) == _plain(gold))


def last_number(text: str) -> str | None:
    """The last number of a text as it stands there (``$1,080.``), if there is one."""
    found = [match[0] for match in _ANY_NUMBER.finditer(text)]
    return found[-1].strip() if found else None


def _plain(number: str) -> str:
    for pattern in _IGNORED:
        number = pattern.sub("", number)
    return number.lower()
