"""Passage counting: how many passages a text consists of."""

from __future__ import annotations

import random

from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import Material, wordings

MOST = 6


def write(rng: random.Random, source: Material, size: int) -> Exercise:
    """One to six passages of different novels, each opened by the same mark, and nothing that numbers them."""
    words = wordings()["count"]
    count = rng.randint(1, MOST)
    share = max(size // count - len(words["mark"]), 20)
    context = "\n".join(words["mark"] + source.text(rng, share) for _ in range(count))
    return Exercise(context, (Question(words["question"], f" {count}", (str(count),)),))
