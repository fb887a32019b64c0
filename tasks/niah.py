"""Needle in a haystack: one number to find among several in pages of a novel.

A needle is a sentence that states a four-digit number under a two-word key, and a question asks for the number. Forms,
adjectives and nouns are in `needles.json`, which names their origin. The testbed was trained on the forms: the question
stands on a line of its own, and the answer follows it after one space.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, distinct, files_hash, grid, listed, nearest, repeats, whole
from tasks.haystack import BOOKS, Haystack, most_that_fit, novels, passage

NEEDLE_WORDINGS = Path(__file__).with_name("needles.json")
_DATA = json.loads(NEEDLE_WORDINGS.read_text(encoding="utf-8"))
DIGITS = 4  # of one token each, as SnapKV's kernel of 7 slots keeps three tokens behind the first (docs/testbed.md)


@dataclass(frozen=True)
class Form:
    """One wording; ``{k}`` stands for the key and ``{v}`` for the value."""

    needle: str
    question: str


FORMS: dict[str, Form] = {name: Form(**form) for name, form in _DATA["forms"].items()}
KEYS: tuple[str, ...] = tuple(f"{adjective} {noun}" for adjective in _DATA["adjectives"] for noun in _DATA["nouns"])


@dataclass(frozen=True)
class Fact:
    """A key and its value; the value is ``DIGITS`` decimal digits, leading zeros included."""

    key: str
    value: str

    def needle(self, form: Form) -> str:
        """The sentence that states the fact."""
        return form.needle.format(k=self.key, v=self.value)

    def question(self, form: Form) -> str:
        """What asks for its value."""
        return form.question.format(k=self.key)


def draw_facts(rng: random.Random, count: int) -> tuple[Fact, ...]:
    """``count`` facts with distinct keys and distinct values."""
    values = rng.sample(range(10**DIGITS), count)
    return tuple(Fact(key, f"{value:0{DIGITS}d}") for key, value in zip(rng.sample(KEYS, count), values, strict=True))


# The task.

WORDS_PER_NEEDLE = 4  # the least text that still counts as a haystack


@dataclass(frozen=True)
class NeedleInAHaystack(Task):
    """Needle in a haystack: recall the number of one key among several, hidden in pages of a held-out novel.

    Lengths are tokens of the whole prompt (special tokens and question included) as the tokenizer encodes it; a
    prompt is never longer, and shorter only by what the next word would have added. Depths are percent of the
    haystack before the asked needle; the others, of the same form with other keys and numbers, lie at random
    depths. The question comes last. A sample depends on the seed and on its own length, depth and repeat, not
    on what else those lists hold.

    Deviations from gkamradt/LLMTest_NeedleInAHaystack: needles and questions are those that the testbed was
    trained on; there are others to tell apart; haystacks are novels, not essays; the score needs no judge.
    """

    name: ClassVar[str] = "niah"
    version: ClassVar[str] = "2"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    asks_last: ClassVar[bool] = True

    lengths: tuple[int, ...] = (512, 1024)  # tokens
    depths: tuple[int, ...] = (10, 30, 50, 70, 90)  # percent: the centres of fifths
    repeats: int = 6  # samples for each length and depth
    needles: int = 4  # the asked one included
    forms: tuple[str, ...] = tuple(FORMS)  # question forms, taken in turn over the repeats
    max_new_tokens: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        forms = (self.forms,) if isinstance(self.forms, str) else listed("niah.forms", self.forms)
        for form in forms:
            if form not in FORMS:
                raise TaskError(f"niah knows no question form '{form}'. {nearest(str(form), FORMS)}")
        checked = {
            "lengths": grid("niah.lengths", self.lengths, 1),
            "depths": grid("niah.depths", self.depths, 0, 100),
            "repeats": repeats("niah.repeats", self.repeats),
            "needles": whole("niah.needles", self.needles, 1, len(KEYS)),
            "forms": distinct("niah.forms", forms),
            "max_new_tokens": whole("niah.max_new_tokens", self.max_new_tokens, 1),
            "seed": whole("niah.seed", self.seed, 0),
        }
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    def revision(self) -> dict[str, str]:
        """The novels, and the wordings of needles and questions."""
        return {"data": files_hash(*BOOKS), "prompts": files_hash(NEEDLE_WORDINGS)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Repeats outermost: every prefix covers the grid as evenly as it can."""
        return self.first(tokenizer)

    def first(self, tokenizer: Tokenizer, count: int | None = None) -> list[Sample]:
        """Only these are made."""
        points = islice(product(range(self.repeats), self.lengths, self.depths), count)
        return [self._sample(tokenizer, length, depth, repeat) for repeat, length, depth in points]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """1 if the asked number occurs in the prediction, else 0: RULER's string match.

        What follows the number does not count: under eviction a model often finds the number and forgets to stop.
        """
        return {"string_match": float(any(number in prediction for number in sample.references))}

    def _sample(self, tokenizer: Tokenizer, length: int, depth: int, repeat: int) -> Sample:
        draft = self._draft(length, depth, repeat)
        if draft.tokens(tokenizer, *draft.least()) > length:
            raise TaskError(self._too_short(tokenizer, length))
        book = novels()[draft.book].name
        return Sample(
            id=f"L{length}-d{depth}-r{repeat}",
            prompt=draft.fitted(tokenizer, length),
            question=draft.question,
            references=(draft.facts[0].value,),
            max_new_tokens=self.max_new_tokens,
            document=f"{book}@{draft.offset}",
            axes={"length": length, "depth": depth, "form": draft.form, "book": book},
        )

    def _draft(self, length: int, depth: int, repeat: int) -> NeedleDraft:
        # Strings seed `random` by SHA-512, the same on every machine. Books and forms rotate over the repeats of one
        # length and depth, each from its own start: every point of the grid sees them evenly.
        cell = random.Random(f"niah/{self.seed}/{length}/{depth}")
        book = (cell.randrange(len(novels())) + repeat) % len(novels())
        form = self.forms[(cell.randrange(len(FORMS)) + repeat) % len(self.forms)]
        rng = random.Random(f"niah/{self.seed}/{length}/{depth}/{repeat}")
        offset = novels()[book].paragraph(near=rng.randrange(len(novels()[book].text)))
        facts = draw_facts(rng, self.needles)
        return NeedleDraft(book, offset, form, facts, (depth / 100, *(rng.random() for _ in facts[1:])))

    def _too_short(self, tokenizer: Tokenizer, length: int) -> str:
        drafts = [self._draft(length, depth, repeat) for depth in self.depths for repeat in range(self.repeats)]
        needed = max(draft.tokens(tokenizer, *draft.least()) for draft in drafts)
        enough = -(-needed * 5 // 4 // 8) * 8  # other lengths have other excerpts and keys: leave some room
        return (
            f"niah.lengths has {length}, which is too short: question, needles ({self.needles}) and some text "
            f"take up to {needed} tokens with this tokenizer. Use {enough} or more, or fewer needles."
        )


@dataclass(frozen=True)
class NeedleDraft:
    """A sample before the size of its haystack is chosen. The first fact is the one that is asked for."""

    book: int
    offset: int  # characters
    form: str
    facts: tuple[Fact, ...]
    depths: tuple[float, ...]  # 0 to 1, one for each fact

    def prompt(self, haystack: Haystack, pieces: int) -> str:
        """The needles in ``pieces`` pieces of haystack, and the question for the first one."""
        form = FORMS[self.form]
        needles = [(depth, fact.needle(form)) for depth, fact in zip(self.depths, self.facts, strict=True)]
        return haystack.bury(pieces, needles) + self.question

    @property
    def question(self) -> str:
        """The last line of the prompt."""
        return f"\n{self.facts[0].question(FORMS[self.form])}"

    def tokens(self, tokenizer: Tokenizer, haystack: Haystack, pieces: int) -> int:
        """The prompt's length in tokens, special tokens included."""
        return len(tokenizer.encode(self.prompt(haystack, pieces)))

    def least(self) -> tuple[Haystack, int]:
        """The smallest haystack: every needle finds a place of its own in it."""
        words = WORDS_PER_NEEDLE * len(self.facts)
        haystack = Haystack(passage(self.book, self.offset, characters=40 * words))
        return haystack, haystack.holding(words)

    def fitted(self, tokenizer: Tokenizer, length: int) -> str:
        """The prompt with the largest haystack that keeps it within ``length`` tokens."""
        smallest, low = self.least()
        # More than most tokenizers put into so many tokens; doubled where it is not.
        characters = len(smallest.text) + 8 * length
        while True:
            haystack = Haystack(passage(self.book, self.offset, characters))
            pieces = most_that_fit(partial(self.tokens, tokenizer, haystack), length, low, len(haystack.cuts))
            if pieces < len(haystack.cuts):
                return self.prompt(haystack, pieces)
            if len(haystack.text) < characters:
                raise TaskError(f"niah.lengths has {length}, more tokens than all novels hold; use less.")
            characters *= 2
