"""Code-like copying: the rest of a line whose beginning stands in the file already."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import Material

LINE = 52  # characters of a line, about
ASKED = 5  # in training


def write(rng: random.Random, source: Material, size: int) -> Exercise:
    """Assignments of calls to distinct names; the question repeats one name."""
    count = max(size // LINE, 3)
    keys = [key.replace(" ", "_") for key in source.keys(rng, count)]
    calls = [
        f"{rng.choice(source.adjectives)}({rng.choice(source.nouns)}, {rng.choice(source.nouns)}, {rng.randrange(100)})"
        for _ in keys
    ]
    lines = [f"{key} = {call}" for key, call in zip(keys, calls, strict=True)]
    asked = rng.sample(range(count), min(ASKED, count))
    questions = [Question(f"{keys[index]} =", f" {calls[index]}", (calls[index],)) for index in asked]
    return Exercise("\n".join(lines), tuple(questions), predictable=False)
