"""RULER's samples of retrieval and tracing: needles in a haystack, variable tracking.

Those of counting are in `tasks.ruler_counting`. A `RulerDraft` is a sample before the size of its context is chosen;
the settings of each subset are in ``tasks/prompts/ruler.yaml``.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

from tasks.base import TaskError, nearest
from tasks.data.tables import table
from tasks.haystack import SENTENCE_END, most_that_fit, novels, passage
from tasks.templates import fill, prompts, question_of

GENERATED = ("niah", "variable_tracking", "common_words_extraction", "freq_words_extraction")  # not the QA subsets
SUBSETS: tuple[str, ...] = tuple(name for name, row in prompts("ruler")["tasks"].items() if row["task"] in GENERATED)

# Needles.
DEPTHS = tuple(round(100 * step / 39) for step in range(40))  # percent
CHARACTERS = 8  # of prose per token: more than the tokens of any tokenizer have
# Variable tracking.
EXAMPLE = 500  # tokens of the answered example in front
LETTERS, EXAMPLE_LETTERS = 5, 3  # of a variable's name


@dataclass(frozen=True)
class RulerSettings:
    """One subset as RULER's ``synthetic.yaml`` and ``constants.py`` have it."""

    kind: str  # one of GENERATED
    arguments: Mapping[str, Any]
    template: str
    answer_prefix: str
    max_new_tokens: int

    @classmethod
    def of(cls, subset: str) -> RulerSettings:
        """The settings of ``subset``; `TaskError` with the nearest names where there is no such subset."""
        if subset not in SUBSETS:
            raise TaskError(f"RULER has no subset '{subset}'. {nearest(str(subset), SUBSETS)}")
        row = prompts("ruler")["tasks"][subset]
        base = prompts("ruler")["base"][row["task"]]
        return cls(row["task"], row["args"], base["template"], base["answer_prefix"], base["tokens_to_generate"])

    @property
    def questions(self) -> int:
        """How many different questions one haystack answers, none of them about a key of another."""
        if self.kind != "niah":
            return 1
        asked = int(self.arguments["num_needle_q"])
        return max(int(self.arguments["num_needle_k"]), asked) // asked


@dataclass(frozen=True)
class RulerDraft:
    """A sample before the size of its context is chosen, which is counted in words or lines.

    ``example`` is an answered question that stands before the asked one.
    """

    template: str
    answer_prefix: str
    fields: Mapping[str, object]
    context: Callable[[int], str]
    least: int  # the smallest context that holds everything asked for
    most: int  # the largest that there is material for
    references: tuple[str, ...]
    example: str = ""
    document: str = ""  # where the text was taken from, if from a text

    def prompt(self, size: int) -> str:
        """The prompt with ``size`` units of context."""
        return self.example + fill(self.template, context=self.context(size), **self.fields)

    @cached_property
    def question(self) -> str:
        """The end of the prompt, after the context."""
        return question_of(self.template, "context", **self.fields)

    @cached_property
    def answer(self) -> str:
        """The start of the answer."""
        return fill(self.answer_prefix, **self.fields)

    def fitted(self, tokens: Callable[[str], int], limit: int) -> int | None:
        """The size of the largest context for which prompt and start of the answer measure ``limit`` at most.

        None where even the smallest does not fit. Raises `TaskError` where there is too little material.
        """

        def measure(size: int) -> int:
            return tokens(self.prompt(size) + self.answer)

        base = measure(self.least)
        if base > limit:
            return None
        step = min(self.most - self.least, 16)
        each = max((measure(self.least + step) - base) / max(step, 1), 0.25)
        # Twice the size that the first units suggest is enough, and spares the search prompts many times too long.
        most = min(self.most, self.least + 16 + int(2 * (limit - base) / each))
        size = most_that_fit(measure, limit, self.least, most)
        if size == self.most:
            raise TaskError(
                f"ruler.lengths has more than word lists and novels can fill: they make a prompt of {measure(size)} "
                "tokens (RULER's longer English word list is not included). Use less."
            )
        return size


# Needles in a haystack: magic numbers or UUIDs of some keys, in prose, in noise, or among other needles.


def needle_draft(settings: RulerSettings, rng: random.Random, length: int, turn: int, question: int = 0) -> RulerDraft:
    """One sample; ``turn`` says which novel a haystack of prose is taken from. ``question``: 0 for the keys that RULER
    would ask for, 1 and more for others of the same haystack, as many as there are.
    """
    given = settings.arguments
    keys = _distinct(
        lambda: random_word(given["type_needle_k"], rng), max(given["num_needle_k"], given["num_needle_q"])
    )
    values = {key: [random_word(given["type_needle_v"], rng) for _ in range(given["num_needle_v"])] for key in keys}
    asked = rng.sample(keys, given["num_needle_q"])
    if question:
        others = [key for key in keys if key not in asked]
        asked = others[(question - 1) * len(asked) : question * len(asked)]
    kind = given["type_needle_v"]
    needles = [needle(kind, key, value) for key in keys for value in values[key]]
    rng.shuffle(needles)
    alone = given["num_needle_q"] * given["num_needle_v"] == 1
    document, context, most = "", partial(among_lines, needles, [rng.random() for _ in needles]), 10**9
    if given["type_haystack"] == "essay":
        document, words = _prose(rng, length, turn)
        context, most = partial(in_prose, needles, sorted(rng.sample(DEPTHS, len(needles))), words), len(words)
    elif given["type_haystack"] == "noise":
        context = partial(context, [prompts("ruler")["noise_haystack"]])
    else:
        context = partial(context, _decoys(settings, rng, set(keys), length))
    return RulerDraft(
        template=singular(settings.template) if alone else settings.template,
        answer_prefix=singular(settings.answer_prefix) if alone else settings.answer_prefix,
        fields={"type_needle_v": kind.removesuffix("s") if alone else kind, "query": enumerated(asked)},
        context=context,
        least=len(needles),
        most=most,
        references=tuple(value for key in asked for value in values[key]),
        document=document,
    )


def needle(kind: str, key: str, value: str) -> str:
    """The sentence that says the magic number (or UUID) of a key."""
    return fill(prompts("ruler")["needle"], type_needle_v=kind, key=key, value=value)


def singular(text: str) -> str:
    """A template for one needle."""
    for plural, one in prompts("ruler")["niah"]["singular_replacements"]:
        text = text.replace(plural, one)
    return text


def enumerated(items: Sequence[str]) -> str:
    """``a, b, and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


def random_word(kind: str, rng: random.Random) -> str:
    """A random key or value of a kind: words, numbers, uuids."""
    if kind == "numbers":
        return str(rng.randint(10**6, 10**7 - 1))
    if kind == "uuids":
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return "-".join(rng.choice(table(f"wonderwords/{part}").rows)["word"] for part in ("adjectives", "nouns"))


def among_lines(needles: Sequence[str], places: Sequence[float], lines: Sequence[str], size: int) -> str:
    """``size`` lines, taken in turn, with each needle on a line of its own at its place (0 to 1)."""
    context = [lines[index % len(lines)] for index in range(size)]
    # From the last to the first, so that no insertion moves the place of another.
    for place, sentence in sorted(zip(places, needles, strict=True), reverse=True):
        context.insert(int(place * size), sentence)
    return "\n".join(context)


def in_prose(needles: Sequence[str], depths: Sequence[int], words: Sequence[str], size: int) -> str:
    """The first ``size`` words, with each needle after the sentence at its depth, a percentage of the sentences."""
    sentences = split_sentences(" ".join(words[:size]))
    places = [int(len(sentences) * depth / 100) for depth in depths]
    for place, sentence in sorted(zip(places, needles, strict=True), reverse=True):
        sentences.insert(place, sentence)
    return " ".join(sentences)


def split_sentences(text: str) -> list[str]:
    """Sentences by the rule of `tasks.haystack`: NLTK's needs a download and is no better for novels."""
    ends = [found.end() for found in SENTENCE_END.finditer(text)]
    return [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def _prose(rng: random.Random, length: int, turn: int) -> tuple[str, list[str]]:
    book = turn % len(novels())
    novel = novels()[book]
    offset = novel.paragraph(near=rng.randrange(len(novel.text)))
    return f"{novel.name}@{offset}", passage(book, offset, CHARACTERS * length).split()


def _decoys(settings: RulerSettings, rng: random.Random, taken: set[str], length: int) -> list[str]:
    """Needles of other keys, more than can be needed: each is several tokens long."""
    kind = settings.arguments["type_needle_v"]
    lines: list[str] = []
    while len(lines) < length // 4:
        key = random_word(settings.arguments["type_needle_k"], rng)
        if key not in taken:
            lines.append(needle(kind, key, random_word(kind, rng)))
    return lines


def _distinct(draw: Callable[[], str], count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[draw()] = None
    return list(found)


# Variable tracking: which variables a number reaches through a chain of assignments in noise.


def variable_tracking_draft(
    settings: RulerSettings, rng: random.Random, length: int, tokens: Callable[[str], int]
) -> RulerDraft:
    """One sample with RULER's answered example in front, which takes a quarter of short prompts at most."""
    shown = _chain(settings, rng, EXAMPLE_LETTERS)
    size = shown.fitted(tokens, min(EXAMPLE, length // 4))
    example = shown.prompt(shown.least if size is None else size)
    return _chain(settings, rng, LETTERS, f"{example}{shown.answer}{' '.join(shown.references)}\n")


def _chain(settings: RulerSettings, rng: random.Random, letters: int, example: str = "") -> RulerDraft:
    names: list[str] = []
    while len(names) <= settings.arguments["num_hops"]:
        name = "".join(rng.choices(string.ascii_uppercase, k=letters))
        if name not in (*names, "VAR"):
            names.append(name)
    value = rng.randrange(10000, 99999)
    lines = [f"VAR {names[0]} = {value}"]
    lines += [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
    places = sorted(rng.random() for _ in lines)  # a variable is known before it is copied
    return RulerDraft(
        template=settings.template,
        answer_prefix=settings.answer_prefix,
        fields={"query": value, "num_v": len(names)},
        context=partial(among_lines, lines, places, [prompts("ruler")["noise_haystack"]]),
        least=len(lines),
        most=10**9,
        references=tuple(names),
        example=example,
    )
