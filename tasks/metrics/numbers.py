"""Right or wrong final numbers in GSM8K completions, extracted in the two ways that are in use."""

from __future__ import annotations

import re

_MARKED = re.compile(r"#### (\-?[0-9\.\,]+)")
_ANY_NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = tuple(re.compile(pattern) for pattern in (r",", r"\$", r"(?s).*#### ", r"\.$"))  # in this order


def gsm8k_strict(prediction: str, gold: str) -> float:
    """1 if the first number after ``####`` is the gold one, commas aside; compared as text, so ``18.`` is not ``18``.

    ``gold`` is the number or the whole reference solution. Source: openai/grade-school-math ``dataset.py``.
    """
    said = _marked(prediction)
    return float(said is not None and said == (_marked(gold) or gold.replace(",", "")))


def gsm8k_flexible(prediction: str, gold: str) -> float:
    """1 if the last number anywhere is the gold one: ``flexible-extract`` of lm-evaluation-harness, gsm8k 3.0.

    Commas, dollar signs and one final full stop are ignored; ``18.0`` is not ``18``. ``gold`` as in `gsm8k_strict`.
    """
    said = last_number(prediction)
    return float(said is not None and _plain(said) == _plain(gold))


def last_number(text: str) -> str | None:
    """The last number of a text as it stands there (``$1,080.``), if there is one."""
    found = [match[0] for match in _ANY_NUMBER.finditer(text)]
    return found[-1].strip() if found else None


def _marked(text: str) -> str | None:
    found = _MARKED.search(text)
    return found[1].replace(",", "") if found else None


def _plain(number: str) -> str:
    for pattern in _IGNORED:
        number = pattern.sub("", number)
    return number.lower()
