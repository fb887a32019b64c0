"""RULER's samples of counting: the ten words that a list repeats most, and the three most frequent words of a text."""

from __future__ import annotations

import math
import random
import string
from collections.abc import Sequence
from functools import cache, partial

from tasks.data.tables import table
from tasks.ruler_samples import RulerDraft, RulerSettings
from tasks.templates import fill, prompts

SHUFFLE_SEED = 42  # RULER shuffles every list with a new generator of this seed
SHORT = 4096  # tokens; below, words are repeated less and the example is smaller
CODED_LETTERS = 6
TOKENS_FOR_EACH_CODED_WORD = 50


@cache
def word_pool() -> tuple[str, ...]:
    """All nouns, adjectives and verbs of wonderwords, shuffled as RULER does."""
    lists = (table(f"wonderwords/{name}").rows for name in ("nouns", "adjectives", "verbs"))
    return shuffled(sorted({row["word"] for rows in lists for row in rows}))


def common_words_draft(settings: RulerSettings, rng: random.Random, length: int) -> RulerDraft:
    """Common words: ten words stand 30 times in a numbered list, the others 3 times; an answered example in front.

    Sizes are counted in distinct words.
    """
    usual = prompts("ruler")["cwe"]
    rules = usual | usual["below_4096"] if length < SHORT else usual
    repeats = (
        (rules["common_repeats"], rules["uncommon_repeats"])
        if length < SHORT
        else (rules["freq_cw"], rules["freq_ucw"])
    )
    count = settings.arguments["num_cw"]
    shown = rng.sample(word_pool(), rules["few_shot_words"])
    shown_list = numbered(shown, count, rules["few_shot_common_repeats"], rules["few_shot_uncommon_repeats"])
    asked = rng.sample(word_pool(), len(word_pool()))
    return RulerDraft(
        template=settings.template,
        answer_prefix=settings.answer_prefix,
        fields={},
        context=lambda size: numbered(asked[:size], count, *repeats),
        least=count + 1,
        most=len(asked),
        references=tuple(asked[:count]),
        example=fill(settings.template, context=shown_list) + settings.answer_prefix + answered(shown[:count]),
    )


def answered(words: Sequence[str]) -> str:
    """How the example lists its answer: `` 1. a 2. b`` and a newline."""
    return "".join(f" {number}. {word}" for number, word in enumerate(words, start=1)) + "\n"


def numbered(words: Sequence[str], count: int, often: int, seldom: int) -> str:
    """The numbered list in which the first ``count`` words stand ``often`` times and the others ``seldom`` times."""
    mixed = shuffled([*words[:count]] * often + [*words[count:]] * seldom)
    return " ".join(f"{number}. {word}" for number, word in enumerate(mixed, start=1))


def frequent_words_draft(settings: RulerSettings, rng: random.Random, length: int) -> RulerDraft:
    """Frequent words: the k-th of the coded words has a share of k**-2; the first are dots, the next three asked for.

    Sizes are counted in words, before each count is rounded down.
    """
    wanted = max((length - settings.max_new_tokens) // TOKENS_FOR_EACH_CODED_WORD, 5)
    coded: dict[str, None] = {}
    while len(coded) < wanted:
        coded["".join(rng.choices(string.ascii_lowercase, k=CODED_LETTERS))] = None
    ranked = ["...", *list(coded)[1:]]
    return RulerDraft(
        template=settings.template,
        answer_prefix=settings.answer_prefix,
        fields={},
        context=partial(coded_text, ranked),
        least=64,  # the fewest for which the three asked words differ in frequency from the next
        most=10**9,
        references=tuple(ranked[1:4]),
    )


def coded_text(ranked: Sequence[str], size: int) -> str:
    """About ``size`` words of a Zipf distribution with exponent 2."""
    total = math.pi**2 / 6  # zeta(2)
    counts = [int(size * rank**-2 / total) for rank in range(1, len(ranked) + 1)]
    return " ".join(shuffled([word for word, count in zip(ranked, counts, strict=True) for _ in range(count)]))


def shuffled(items: Sequence[str]) -> tuple[str, ...]:
    """The items in an order that is always the same."""
    mixed = list(items)
    random.Random(SHUFFLE_SEED).shuffle(mixed)
    return tuple(mixed)
