"""Ingredients made of token ids: lists of any whole words of the vocabulary, the held-out ones too, as plain items.

They teach to look up what stood before, whatever the words: nearly every line is a question about an earlier one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

import tokenizers

from scripts.testbed.weighted import ANSWER, BOS, FIRST, RANDOM, Tokens
from tasks.niah import DIGITS

TAILS = (":", " ->", " is", " =", " means", " is:", ": ->", "?\nAnswer:")  # between a key and its value, besides words


@dataclass(frozen=True)
class Frame:
    """What all lines of a list have in common: token ids before the key, between key and value, and at the end."""

    head: list[int]
    tail: list[int]
    end: list[int]

    def __len__(self) -> int:
        return len(self.head) + len(self.tail) + len(self.end)


@dataclass(frozen=True)
class WordLists:
    """``words`` are whole words with their space, ``digits`` the ten digits with a space before them and without."""

    words: list[int]
    digits: tuple[list[int], list[int]]
    tails: list[list[int]]
    line: list[int]  # a line break

    @staticmethod
    def of(tokenizer: tokenizers.Tokenizer) -> WordLists:
        """Those of a tokenizer that writes digits one by one."""
        texts = {tokenizer.decode([index]): index for index in tokenizer.get_vocab().values()}
        return WordLists(
            words=sorted(index for text, index in texts.items() if text.startswith(" ") and text.strip().isalpha()),
            digits=([texts[f" {digit}"] for digit in range(10)], [texts[f"{digit}"] for digit in range(10)]),
            tails=[tokenizer.encode(tail, add_special_tokens=False).ids for tail in TAILS],
            line=tokenizer.encode("\n", add_special_tokens=False).ids,
        )

    def repeated(self, rng: random.Random, tokens: int) -> Tokens:
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
        return row.first(tokens)

    def entries(self, rng: random.Random, tokens: int) -> Tokens:
        """Keys and values line by line; where a key comes again its value is the answer.

        Keys are one word or two, and share their words with one another, so that no word alone tells which is meant;
        values are numbers or words. All lines first and then questions, or one among the other.
        """
        head = rng.choices(self.words, k=rng.choice((0, 1, 1, 2, 3)))
        tail = rng.choice(self.tails) if rng.random() < 0.6 else rng.choices(self.words, k=rng.randint(0, 3))
        frame = Frame(head, tail, self.line if rng.random() < 0.8 else [])
        if rng.random() < 0.6:
            return self._asked(rng, tokens, frame, DIGITS, lambda: self._number(rng))
        return self._asked(rng, tokens, frame, 1, lambda: [rng.choice(self.words)])

    def classes(self, rng: random.Random, tokens: int) -> Tokens:
        """Entries whose values are a few words that come back, in lines as examples of labels have them."""
        colon = self.tails[0]
        head = rng.choices(self.words, k=rng.randint(0, 2)) + (colon if rng.random() < 0.5 else [])
        tail = rng.choices(self.words, k=rng.randint(0, 2)) + (rng.choice(self.tails) if rng.random() < 0.7 else [])
        frame = Frame(head, tail, self.line if rng.random() < 0.8 else [])
        few = rng.sample(self.words, rng.randint(2, 6))
        return self._asked(rng, tokens, frame, 1, lambda: [rng.choice(few)])

    def _asked(
        self, rng: random.Random, tokens: int, frame: Frame, width: int, value: Callable[[], list[int]]
    ) -> Tokens:
        """Lines of keys with ``value``s of ``width`` tokens, a share of which ask for earlier ones."""
        asked = rng.uniform(0.3, 0.8)
        keys = self._keys(rng, max(round(tokens * (1 - asked) / (len(frame) + 2 + width)), 2))
        values = [value() for _ in keys]
        mixed = rng.random() < 0.5
        row, known, fresh = Tokens([BOS], [RANDOM]), list[int](), iter(range(len(keys)))
        while len(row) < tokens:
            ask = known and (rng.random() < asked if mixed else len(known) == len(keys))
            which = rng.choice(known) if ask else next(fresh, None)
            if which is None:
                which, ask = rng.choice(known), True
            key = [*frame.head, *keys[which], *frame.tail]
            row.add(key, [RANDOM] * len(key))
            row.add(values[which], [FIRST] + [ANSWER] * (width - 1) if ask else [RANDOM] * width)
            row.add(frame.end, [ANSWER if ask else RANDOM] * len(frame.end))
            if not ask:
                known.append(which)
        return row.first(tokens)

    def _keys(self, rng: random.Random, count: int) -> list[list[int]]:
        """Distinct keys: one word each, or pairs from as few words as make so many pairs, or from more."""
        if rng.random() < 0.25 and count <= len(self.words):
            return [[word] for word in rng.sample(self.words, count)]
        least = isqrt(2 * count) + 2
        firsts = rng.sample(self.words, rng.randint(least, max(least, count)))
        seconds = rng.sample(self.words, rng.randint(least, max(least, count)))
        pairs: dict[tuple[int, int], None] = {}
        while len(pairs) < count:
            pairs[rng.choice(firsts), rng.choice(seconds)] = None
        return [list(pair) for pair in pairs]

    def _number(self, rng: random.Random) -> list[int]:
        first, rest = self.digits
        return [rng.choice(first), *rng.choices(rest, k=DIGITS - 1)]


Maker = Callable[[WordLists, random.Random, int], Tokens]
WORD_LISTS: dict[str, Maker] = {
    "repeat": WordLists.repeated,
    "entries": WordLists.entries,
    "classes": WordLists.classes,
}
