"""Accuracy on held-out books, words and wordings while training goes on."""

from __future__ import annotations

import random
from collections.abc import Callable

import tokenizers
import torch
from torch import Tensor

from scripts.testbed.ingredients import INGREDIENTS
from scripts.testbed.mixture import Mixture
from scripts.testbed.weighted import FIRST
from tasks.mini.material import material


@torch.no_grad()
def accuracy(
    logits: Callable[[Tensor], Tensor], tokenizer: tokenizers.Tokenizer, length: int, count: int
) -> dict[str, float]:
    """For each ingredient: the share of answers whose first token is the model's first choice, given what is before it.

    Exercises of at most ``length`` tokens from the test split; NaN-free: ingredients without an answer are left out.
    """
    held_out = Mixture(tokenizer, material("test"), {"prose": 1}, length)
    found = {}
    for name in INGREDIENTS:
        right = asked = 0
        for index in range(count):
            part = held_out.fitted(random.Random(f"probe/{name}/{length}/{index}"), name, length)
            begins = torch.tensor(part.weights[1:]) == FIRST
            if not begins.any():
                continue
            ids = torch.tensor([part.ids])
            hits = logits(ids[:, :-1]).argmax(-1)[0] == ids[0, 1:]
            right += int(hits[begins].sum())
            asked += int(begins.sum())
        if asked:
            found[name] = right / asked
    return found
