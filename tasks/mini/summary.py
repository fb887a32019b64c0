"""Extractive summary: the sentences that the text marks as key points, in order."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import Material, wordings

POINTS = 3


def write(rng: random.Random, source: Material, size: int, points: int = POINTS) -> Exercise:
    """Pages of a novel between key points, which are sentences of other pages; the summary repeats them."""
    words = wordings()["summary"]
    sentences = source.sentences(rng, points)
    marked = [words["point"].format(n=index, s=sentence) for index, sentence in enumerate(sentences, start=1)]
    pages = max(size - sum(map(len, marked)), 0) // (points + 1)
    cuts = sorted(rng.uniform(0.2, 1.8) for _ in range(points))
    parts = []
    for point, share in zip(marked, cuts, strict=True):
        parts += [source.text(rng, round(pages * share)), point]
    context = "\n".join([*parts, source.text(rng, pages)])
    return Exercise(context, (Question(words["question"], " " + " ".join(marked), (" ".join(sentences),)),))
