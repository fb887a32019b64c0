"""Questions about one document: facts in pages of a novel, asked in several wordings."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import FactForm, Material

FACTS = 4  # in a document that is asked about; at least


def write(rng: random.Random, source: Material, size: int, facts: int = FACTS) -> Exercise:
    """``facts`` facts of one form, with keys and values of their own, in running text of about ``size`` characters."""
    form = rng.choice(source.facts)
    keys = source.keys(rng, facts)
    values = draw_values(rng, source, form, facts)
    needles = [form.needle.format(k=key, v=value) for key, value in zip(keys, values, strict=True)]
    questions = [
        Question(form.question.format(k=key), f" {value}", (value,)) for key, value in zip(keys, values, strict=True)
    ]
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions), form=form.name)


def draw_values(rng: random.Random, source: Material, form: FactForm, count: int) -> list[str]:
    """Distinct values of the kind that the form asks for."""
    return rng.sample(source.names, count) if form.value == "name" else source.numbers(rng, count)
