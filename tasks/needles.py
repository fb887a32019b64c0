"""Needles: sentences that hide a four-digit number under a two-word key, and the questions that ask for it.

Forms, adjectives and nouns are in `needles.json`, which names their origin. The testbed was trained on them:
the question stands on a line of its own, and the answer follows it after one space.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

WORDINGS = Path(__file__).with_name("needles.json")
_DATA = json.loads(WORDINGS.read_text(encoding="utf-8"))
DIGITS = 4  # of one token each, as SnapKV's kernel of 7 slots keeps three tokens behind the first (docs/testbed.md)


@dataclass(frozen=True)
class Form:
    """One wording; ``{k}`` stands for the key and ``{v}`` for the value."""

    needle: str
    question: str


FORMS: dict[str, Form] = {name: Form(**form) for name, form in _DATA["forms"].items()}
KEYS: tuple[str, ...] = tuple(f"{adjective} {noun}" for adjective in _DATA["adjectives"] for noun in _DATA["nouns"])


@dataclass(frozen=True)
class Fact:
    """A key and its value; the value is ``DIGITS`` decimal digits, leading zeros included."""

    key: str
    value: str

    def needle(self, form: Form) -> str:
        """The sentence that states the fact."""
        return form.needle.format(k=self.key, v=self.value)

    def question(self, form: Form) -> str:
        """What asks for its value."""
        return form.question.format(k=self.key)


def draw_facts(rng: random.Random, count: int) -> tuple[Fact, ...]:
    """``count`` facts with distinct keys and distinct values."""
    values = rng.sample(range(10**DIGITS), count)
    return tuple(Fact(key, f"{value:0{DIGITS}d}") for key, value in zip(rng.sample(KEYS, count), values, strict=True))
