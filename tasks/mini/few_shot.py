"""Few-shot classification: the labels of words, from examples of those words."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question, asked_of
from tasks.mini.material import Material

LABELS = 4


def write(rng: random.Random, source: Material, size: int) -> Exercise:
    """Lines of ``key`` and label. Half of the keys come twice; the asked ones are among all, wherever they stand."""
    line = rng.choice(source.label_lines)
    labels = rng.sample(source.labels, LABELS)
    count = max(size // (len(line) + 16), 4)
    given = {key: rng.choice(labels) for key in source.keys(rng, count * 2 // 3 + 1)}
    shown = [*given, *rng.sample(list(given), count // 3)]
    rng.shuffle(shown)
    lines = [line.format(k=key, v=given[key]) for key in shown]
    asked = rng.sample(list(given), min(asked_of(count), len(given)))
    questions = [Question(line.format(k=key, v="").rstrip(), f" {given[key]}", (given[key],)) for key in asked]
    return Exercise("\n".join(lines), tuple(questions), predictable=False)
