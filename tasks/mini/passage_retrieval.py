"""Passage retrieval: the number of the passage that ends as quoted."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question, asked_of
from tasks.mini.material import Material, wordings

CHARACTERS = 180  # of a passage, about
QUOTED = 14  # words


def write(rng: random.Random, source: Material, size: int) -> Exercise:
    """Consecutive passages of a novel, each followed by its number. The numbers have two digits and no order."""
    words = wordings()["passage"]
    count = max(size // (CHARACTERS + 40), 2)
    passages = source.paragraphs(rng, count, CHARACTERS)
    numbers = [str(number) for number in rng.sample(range(10, 100), count)] if count <= 90 else []
    numbers = numbers or [str(number) for number in rng.sample(range(100, 1000), count)]
    lines = [f"{passage} {words['end'].format(n=number)}" for passage, number in zip(passages, numbers, strict=True)]
    questions = []
    for index in rng.sample(range(count), asked_of(count, least=4, share=4)):
        quotation = " ".join(passages[index].split()[-QUOTED:])
        questions.append(Question(words["question"].format(q=quotation), f" {numbers[index]}]", (numbers[index],)))
    return Exercise("\n".join(lines), tuple(questions))
