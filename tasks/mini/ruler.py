"""RULER in small: key-value lists, several values of one key, variables that follow one another."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question, asked_of
from tasks.mini.material import Material, wordings

VARIABLES = 3  # of a chain
CHAINS = 2


def write_multikey(rng: random.Random, source: Material, size: int) -> Exercise:
    """A list of pairs, all of one form; keys have two words, values four digits."""
    line = rng.choice(source.pairs)
    count = max(size // (len(line) + 14), 3)
    pairs = dict(zip(source.keys(rng, count), source.numbers(rng, count), strict=True))
    asked = rng.sample(list(pairs), asked_of(count))
    questions = [Question(line.format(k=key, v="").rstrip(), f" {pairs[key]}", (pairs[key],)) for key in asked]
    context = "\n".join(line.format(k=key, v=value) for key, value in pairs.items())
    return Exercise(context, tuple(questions), predictable=False)


def values_in_order(rng: random.Random, source: Material, key: str) -> list[tuple[str, str]]:
    """A key's first, second and third value, each as the sentence that states it and the value."""
    words = wordings()["multivalue"]
    values = source.numbers(rng, len(words["ordinals"]))
    return [
        (words["needle"].format(o=ordinal, k=key, v=value), value)
        for ordinal, value in zip(words["ordinals"], values, strict=True)
    ]


def write_multivalue(rng: random.Random, source: Material, size: int, keys: int = 2) -> Exercise:
    """The first, second and third value of each of two keys, in pages of a novel."""
    needles: list[str] = []
    questions = []
    for key in source.keys(rng, keys):
        sentences, values = zip(*values_in_order(rng, source, key), strict=True)
        needles += sentences
        answer = " ".join([f" {values[0]}.", *sentences[1:]])
        questions.append(Question(wordings()["multivalue"]["question"].format(k=key), answer, values))
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions))


def write_variables(rng: random.Random, source: Material, size: int) -> Exercise:
    """Two chains of three variables; the first of each is assigned a number, each other one the one before."""
    words = wordings()["variables"]
    names = [f"{noun}{rng.randrange(10)}" for noun in rng.sample(source.nouns, CHAINS * VARIABLES)]
    needles, questions = [], []
    for chain, number in enumerate(source.numbers(rng, CHAINS)):
        own = names[chain * VARIABLES : (chain + 1) * VARIABLES]
        values = [number, *(f"VAR {name}" for name in own[:-1])]
        needles += [words["needle"].format(a=a, b=b) for a, b in zip(own, values, strict=True)]
        answer = " " + " = ".join(reversed(values)) + "."
        references = (number, *reversed(own[:-1]))
        questions.append(Question(words["question"].format(a=own[-1]), answer, references))
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions))
