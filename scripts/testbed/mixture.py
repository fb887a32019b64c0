"""Batches of training sequences: a pure function of the seed and the step, so that a resumed run goes on unchanged."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tokenizers

from scripts.testbed.ingredients import WRITERS
from tasks.mini.exercise import Exercise
from tasks.mini.material import Material

FIRST = 16.0  # loss weights: the first token of an answer, which says whether the right place was found,
ANSWER = 8.0  # and the tokens after it
PROSE = 1.0
RANDOM = 0.1  # words and numbers drawn at random, where they stand for the first time
ASKING = 0.3  # the text of a question
REPEAT = "repeat"  # ingredients that are made of token ids: lists of random words, repeated,
LABELS = "labels"  # and lines of random words with a label that comes back with them
CHARACTERS = 4.0  # of a token, first guess
SHORTEST = 48  # tokens of an exercise
PACKED = 0.35  # share of sequences that hold several short exercises instead of one long one
BOS = 0


@dataclass
class Tokens:
    """Ids with the loss weight of each."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, ids: list[int], weights: list[float]) -> None:
        """Tokens and their loss weights, behind those before."""
        self.ids += ids
        self.weights += weights

    def __len__(self) -> int:
        return len(self.ids)


class Mixture:
    """``shares`` names ingredients with their relative weights (how often, not how many tokens)."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, source: Material, shares: Mapping[str, float], length: int):
        self.tokenizer, self.source, self.length = tokenizer, source, length
        self.names, self.shares = list(shares), list(shares.values())
        self.octaves = math.log2(max(length / 2 / SHORTEST, 1))  # a packed exercise takes half of a sequence at most
        self.of_ids = {REPEAT: self._repeated, LABELS: self._labelled}
        vocabulary = tokenizer.get_vocab()
        texts = {index: tokenizer.decode([index]) for index in vocabulary.values()}
        self.digits = {index for index, text in texts.items() if text.strip().isdigit()}
        # Random lists take any whole word of the vocabulary, the held-out ones too, as plain vocabulary items.
        self.words = sorted(i for i, text in texts.items() if text.startswith(" ") and text.strip().isalpha())

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
            elif name in self.of_ids:
                part = self.of_ids[name](rng, wanted)
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

    def _repeated(self, rng: random.Random, tokens: int) -> Tokens:
        """A list of random words, then the list again and again, whole or in part."""
        count = rng.randint(4, max(5, min(tokens // 2, 64)))
        words = rng.choices(self.words, k=count)
        row = Tokens([BOS, *words], [RANDOM] * (count + 1))
        whole = rng.random() < 0.5
        while len(row) < tokens:
            start = 0 if whole else rng.randrange(count)
            part = words[start : start + (count if whole else rng.randint(3, 20))]
            # Where a part begins cannot be known, unless the list is repeated whole.
            row.add(part, [ANSWER if whole else RANDOM] + [ANSWER] * (len(part) - 1))
        return Tokens(row.ids[:tokens], row.weights[:tokens])

    def _labelled(self, rng: random.Random, tokens: int) -> Tokens:
        """Two random words, a separator and a label in each line; where words come again their label is the answer."""
        keys = [rng.sample(self.words, 2) for _ in range(rng.randint(3, max(4, tokens // 9)))]
        names = rng.sample(self.words, rng.randint(2, 6))
        labels = [rng.choice(names) for _ in keys]
        head, tail = ([rng.choice(self.words)] if rng.random() < 0.7 else [] for _ in range(2))
        row, seen = Tokens([BOS], [RANDOM]), set()
        while len(row) < tokens:
            which = rng.randrange(len(keys))
            row.add([*head, *keys[which], *tail], [RANDOM] * (len(head) + 2 + len(tail)))
            row.add([labels[which]], [FIRST if which in seen else RANDOM])
            seen.add(which)
        return Tokens(row.ids[:tokens], row.weights[:tokens])
