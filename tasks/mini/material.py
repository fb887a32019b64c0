"""Exercises and what they are made of: novels, key words, names and wordings.

An exercise is a context with questions about it and their answers. Material comes in two splits, for training and for
tasks; nothing that is asked for is in both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import yaml

from tasks.haystack import BOOKS, SENTENCE_END, Haystack, Novel, read_novels
from tasks.niah import DIGITS, FORMS, NEEDLE_WORDINGS
from tasks.niah import KEYS as HELD_OUT_KEYS

Split = Literal["train", "test"]

HERE = Path(__file__).parent
SPLITS = HERE / "splits.yaml"
TEMPLATES = HERE / "wordings.yaml"
TRAINING_BOOKS = tuple(sorted(HERE.parent.joinpath("books_train").glob("*.txt.gz")))
SENTENCE_WORDS = range(6, 15)  # words of a sentence that may be asked to be repeated


@dataclass(frozen=True)
class Question:
    """``answer`` follows ``text`` directly: it starts with a space and ends before a line break."""

    text: str
    answer: str
    references: tuple[str, ...]  # what a scorer looks for in a prediction


@dataclass(frozen=True)
class Exercise:
    """Training asks all ``questions`` one after the other, a task only the first.

    ``predictable`` is whether the context is prose: lists of random words cannot be predicted, and training gives
    them little weight.
    """

    context: str
    questions: tuple[Question, ...]
    form: str = ""
    gold_at: int | None = None  # the place of the document with the answer, from 0, where it was chosen
    predictable: bool = True

    @property
    def axes(self) -> dict[str, str | int]:
        """What a figure may group by: the wording, or the place of the answer."""
        return {"form": self.form} if self.form else {"gold_at": self.gold_at} if self.gold_at is not None else {}

    @property
    def prompt(self) -> str:
        """The context and the first question."""
        return f"{self.context}\n{self.questions[0].text}"


def asked_of(count: int, least: int = 6, share: int = 6) -> int:
    """How many of ``count`` entries training has questions about: one in ``share``, ``least`` of a short list."""
    return min(max(least, count // share), count)


@dataclass(frozen=True)
class FactForm:
    """One wording of a fact and of its question; ``value`` is the kind of thing asked for."""

    name: str
    value: Literal["number", "name"]
    needle: str
    question: str


@dataclass(frozen=True)
class ExerciseMaterial:
    """One split. Draws depend only on the generator that is passed in."""

    novels: tuple[Novel, ...]
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    facts: tuple[FactForm, ...]
    pairs: tuple[str, ...]
    label_lines: tuple[str, ...]
    among: range = range(10**DIGITS)  # what numbers are drawn from

    def keys(self, rng: random.Random, count: int) -> list[str]:
        """Distinct keys of two words: ``silver falcon``."""
        chosen: dict[str, None] = {}
        while len(chosen) < count:
            chosen[f"{rng.choice(self.adjectives)} {rng.choice(self.nouns)}"] = None
        return list(chosen)

    def numbers(self, rng: random.Random, count: int) -> list[str]:
        """Distinct numbers of four digits, leading zeros included."""
        return [f"{number:0{DIGITS}d}" for number in rng.sample(self.among, count)]

    def place(self, rng: random.Random) -> tuple[Novel, int]:
        """A paragraph of a novel, as the character where it starts, long before the end."""
        novel = rng.choice(self.novels)
        return novel, novel.paragraph(near=rng.randrange(len(novel.text) * 9 // 10))

    def text(self, rng: random.Random, characters: int) -> str:
        """Running text from the start of a paragraph: at most so long, shorter only by a part of a word."""
        novel, start = self.place(rng)
        haystack = Haystack(novel.text[start : start + max(characters, 20)])
        return haystack.text[: haystack.last_cuts(2)[0]]

    def paragraphs(self, rng: random.Random, count: int, characters: int) -> list[str]:
        """Consecutive paragraphs' beginnings, whole sentences of at least 60 and about ``characters`` characters."""
        novel, start = self.place(rng)
        found: list[str] = []
        while len(found) < count:
            end = novel.text.find("\n\n", start)
            if end < 0:
                novel, start = self.place(rng)
                continue
            paragraph = " ".join(novel.text[start:end].split())
            ends = [stop.end() for stop in SENTENCE_END.finditer(paragraph)] + [len(paragraph)]
            cut = next((stop for stop in ends if stop >= characters), ends[-1])
            if cut >= 60:
                found.append(paragraph[: min(cut, 2 * characters)])
            start = end + 2
        return found

    def sentences(self, rng: random.Random, count: int) -> list[str]:
        """Distinct sentences of 6 to 14 words without quotation marks, from anywhere in the novels."""
        found: dict[str, None] = {}
        while len(found) < count:
            novel, start = self.place(rng)
            text = " ".join(novel.text[start : start + 1500].split())
            stops = [0, *(stop.end() for stop in SENTENCE_END.finditer(text))]
            whole = [text[a:b].strip() for a, b in pairwise(stops)]
            fitting = [s for s in whole if len(s.split()) in SENTENCE_WORDS and not set(s) & set("“”‘’—;:")]
            if fitting:
                found[rng.choice(fitting)] = None
        return list(found)

    def bury(self, rng: random.Random, characters: int, needles: list[str]) -> str:
        """Running text with needles at random depths, about ``characters`` long in all."""
        own = sum(len(needle) + 1 for needle in needles)
        room = max(characters - own, 60 * len(needles))
        depths = [rng.random() for _ in needles]
        haystack = Haystack(self.text(rng, room))
        return haystack.bury(len(haystack.cuts), list(zip(depths, needles, strict=True)))


@cache
def wordings() -> dict[str, Any]:
    """The templates, as they stand in the file."""
    loaded: dict[str, Any] = yaml.safe_load(TEMPLATES.read_text(encoding="utf-8"))
    return loaded


@cache
def material(split: Split) -> ExerciseMaterial:
    """``train`` for training, ``test`` for tasks."""
    words = yaml.safe_load(SPLITS.read_text(encoding="utf-8"))[split]
    if split == "test":  # the words of `niah`, which training does not use
        adjectives = dict.fromkeys(key.split()[0] for key in HELD_OUT_KEYS)
        nouns = dict.fromkeys(key.split()[1] for key in HELD_OUT_KEYS)
    else:
        adjectives, nouns = dict.fromkeys(words["adjectives"]), dict.fromkeys(words["nouns"])
    # The wordings of `niah` are not held out: its books, key words and numbers are.
    shared = tuple(FactForm(name, "number", form.needle, form.question) for name, form in FORMS.items())
    own = tuple(FactForm(name, **form) for name, form in wordings()["facts"][split].items())
    return ExerciseMaterial(
        novels=read_novels(TRAINING_BOOKS if split == "train" else BOOKS),
        adjectives=tuple(adjectives),
        nouns=tuple(nouns),
        names=tuple(words["names"]),
        labels=tuple(words["labels"]),
        facts=shared + own,
        pairs=tuple(wordings()["pairs"][split]),
        label_lines=tuple(wordings()["labels"][split]),
    )


def sources() -> tuple[Path, ...]:
    """The files that decide what the tasks ask."""
    return (SPLITS, TEMPLATES, NEEDLE_WORDINGS)
