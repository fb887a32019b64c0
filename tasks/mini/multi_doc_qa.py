"""Two-hop questions over several documents, answered with the step between."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import Material, wordings

CHAINS = 3
PER_DOCUMENT = 700  # characters of prose beside each fact, at most


def write(rng: random.Random, source: Material, size: int, chains: int = CHAINS) -> Exercise:
    """Each fact stands in a document of its own: who owns a thing, and the code of a person."""
    hops = wordings()["hops"]
    keys, names = source.keys(rng, chains), rng.sample(source.names, chains)
    numbers = source.numbers(rng, chains)
    facts = [hops["first"].format(k=key, n=name) for key, name in zip(keys, names, strict=True)]
    facts += [hops["second"].format(n=name, v=number) for name, number in zip(names, numbers, strict=True)]
    rng.shuffle(facts)
    share = max(size - sum(map(len, facts)), 0) // len(facts)
    documents = [
        f"Document {index}: " + (source.bury(rng, share, [fact]) if share > PER_DOCUMENT // 10 else fact)
        for index, fact in enumerate(facts, start=1)
    ]
    questions = [
        Question(hops["question"].format(k=key), hops["answer"].format(n=name, v=number), (number, name))
        for key, name, number in zip(keys, names, numbers, strict=True)
    ]
    rng.shuffle(questions)
    return Exercise("\n".join(documents), tuple(questions))
