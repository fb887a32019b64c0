"""Batches of training sequences: a pure function of the seed and the step, so that a resumed run goes on unchanged."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import tokenizers

from scripts.testbed.ingredients import WRITERS
from scripts.testbed.weighted import ANSWER, ASKING, BOS, FIRST, PROSE, RANDOM, Tokens
from scripts.testbed.word_lists import WORD_LISTS, WordLists
from tasks.mini.material import Exercise, ExerciseMaterial

CHARACTERS = 4.0  # of a token, first guess
SHORTEST = 48  # tokens of an exercise
PACKED = 0.35  # share of sequences that hold several short exercises instead of one long one


class Mixture:
    """``shares`` names ingredients with their relative weights (how often, not how many tokens)."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, source: ExerciseMaterial, shares: Mapping[str, float], length: int
    ):
        self.tokenizer, self.source, self.length = tokenizer, source, length
        self.names, self.shares = list(shares), list(shares.values())
        self.octaves = math.log2(max(length / 2 / SHORTEST, 1))  # a packed exercise takes half of a sequence at most
        self.lists = WordLists.of(tokenizer)
        self.digits = {index for kind in self.lists.digits for index in kind}

    def batch(self, seed: str, sequences: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids [sequences, length + 1] and the weights of all but the first token of each [sequences, length]."""
        rows = [self._sequence(random.Random(f"{seed}/{row}")) for row in range(sequences)]
        ids = np.array([row.ids for row in rows], dtype=np.int64)
        weights = np.array([row.weights[1:] for row in rows], dtype=np.float32)
        return ids, weights

    def _sequence(self, rng: random.Random) -> Tokens:
        full = self.length + 1
        packed = rng.random() < PACKED
        row = Tokens()
        while (room := full - len(row)) > 0:
            name = rng.choices(self.names, self.shares)[0]
            short = round(SHORTEST * 2 ** rng.uniform(0, self.octaves)) if packed else room
            wanted = min(room, short)
            if room < SHORTEST and row.ids:
                part = self._encoded(WRITERS["prose"](rng, self.source, 8 * room), room)
            elif name in WORD_LISTS:
                part = WORD_LISTS[name](self.lists, rng, wanted)
            else:
                part = self.fitted(rng, name, wanted)
            row.add(part.ids[:room], part.weights[:room])
        return row

    def fitted(self, rng: random.Random, name: str, tokens: int) -> Tokens:
        """An exercise of at most ``tokens`` tokens, or prose of as many where none fits."""
        state = rng.getstate()
        size = max(round((tokens - 40) * CHARACTERS), 20)
        for _ in range(6):
            rng.setstate(state)
            exercise = WRITERS[name](rng, self.source, size)
            part = self._encoded(exercise, tokens)
            if part.ids and len(part) <= tokens:
                return part
            size = round(size * 0.8) - 20
            if size < 20:
                break
        return self._encoded(WRITERS["prose"](rng, self.source, 8 * tokens), tokens)

    def _encoded(self, exercise: Exercise, tokens: int) -> Tokens:
        """As many questions as fit; nothing where not even one does."""
        pieces = [exercise.context, *(piece for q in exercise.questions for piece in ("\n" + q.text, q.answer)), "\n"]
        # Pieces begin with a line break or a space, where the tokenizer cuts anyway.
        context, *asked, end = (e.ids for e in self.tokenizer.encode_batch_fast(pieces, add_special_tokens=False))
        if not exercise.questions:
            context = context[: tokens - 1]
        row = Tokens([BOS], [RANDOM])
        base = PROSE if exercise.predictable else RANDOM
        row.add(context, [RANDOM if index in self.digits else base for index in context])
        answered = False
        for question, answer in zip(asked[::2], asked[1::2], strict=True):
            if len(row) + len(question) + len(answer) + len(end) > tokens:
                break
            # The line break before the next question is the stop of this answer.
            row.add(question, [ANSWER if answered else ASKING] + [ASKING] * (len(question) - 1))
            row.add(answer, [FIRST] + [ANSWER] * (len(answer) - 1))
            answered = True
        if answered:
            row.add(end, [ANSWER] * len(end))
        return row if answered or not exercise.questions else Tokens()
