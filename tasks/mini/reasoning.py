"""Chains of small sums: each step looks one fact up, the last ones add."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import Material, wordings

CHAINS = 2


def write(rng: random.Random, source: Material, size: int, chains: int = CHAINS) -> Exercise:
    """Chains of two things in pages of a novel: one has coins, the other some more than it. Sums are below 19."""
    words = wordings()["chains"]
    keys = source.keys(rng, 2 * chains)
    needles, questions = [], []
    for base, other in zip(keys[::2], keys[1::2], strict=True):
        given, more = rng.randint(1, 9), rng.randint(1, 9)
        first = words["given"].format(k=base, n=given)
        needles += [first, words["more"].format(k=other, n=more, j=base)]
        result = f"{more} + {given} = {more + given}."
        answer = f" {more} more than the {base}. {first} {result}"
        questions.append(Question(words["question"].format(k=other), answer, (f"= {more + given}.",)))
    rng.shuffle(needles)
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions))
