"""RULER's needles in a haystack: magic numbers or UUIDs of some keys, in prose, in noise or among their kind."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from tasks.data import table
from tasks.haystack import SENTENCE_END
from tasks.novels import novels, passage
from tasks.ruler.draft import Draft, Settings
from tasks.templates import fill, prompts

DEPTHS = tuple(round(100 * step / 39) for step in range(40))  # percent
CHARACTERS = 8  # of prose for each token: more than tokenizers put into one


def draft(settings: Settings, rng: random.Random, length: int, turn: int) -> Draft:
    """One sample; ``turn`` says which novel a haystack of prose is taken from."""
    told = settings.arguments
    keys = _distinct(lambda: drawn(told["type_needle_k"], rng), max(told["num_needle_k"], told["num_needle_q"]))
    values = {key: [drawn(told["type_needle_v"], rng) for _ in range(told["num_needle_v"])] for key in keys}
    asked = rng.sample(keys, told["num_needle_q"])
    kind = told["type_needle_v"]
    needles = [needle(kind, key, value) for key in keys for value in values[key]]
    rng.shuffle(needles)
    alone = told["num_needle_q"] * told["num_needle_v"] == 1
    document, context, most = "", partial(among_lines, needles, [rng.random() for _ in needles]), 10**9
    if told["type_haystack"] == "essay":
        document, words = _prose(rng, length, turn)
        context, most = partial(in_prose, needles, sorted(rng.sample(DEPTHS, len(needles))), words), len(words)
    elif told["type_haystack"] == "noise":
        context = partial(context, [prompts("ruler")["noise_haystack"]])
    else:
        context = partial(context, _decoys(settings, rng, set(keys), length))
    return Draft(
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


def drawn(kind: str, rng: random.Random) -> str:
    """A random key or value of a kind: words, numbers, uuids."""
    if kind == "numbers":
        return str(rng.randint(10**6, 10**7 - 1))
    if kind == "uuids":
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return "-".join(rng.choice(table(f"wonderwords/{part}").rows)["word"] for part in ("adjectives", "nouns"))


def among_lines(needles: Sequence[str], places: Sequence[float], lines: Sequence[str], size: int) -> str:
    """``size`` lines, taken in turn, with each needle on a line of its own at its place (0 to 1)."""
    context = [lines[index % len(lines)] for index in range(size)]
    # From the end on, so that no insertion moves another's place.
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
    """Sentences by the rule of `tasks.haystack`: NLTK's would need a download and does not fit novels better."""
    ends = [found.end() for found in SENTENCE_END.finditer(text)]
    return [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def _prose(rng: random.Random, length: int, turn: int) -> tuple[str, list[str]]:
    book = turn % len(novels())
    novel = novels()[book]
    offset = novel.paragraph(near=rng.randrange(len(novel.text)))
    return f"{novel.name}@{offset}", passage(book, offset, CHARACTERS * length).split()


def _decoys(settings: Settings, rng: random.Random, taken: set[str], length: int) -> list[str]:
    """As many needles of other keys as can ever be needed: each is several tokens long."""
    kind = settings.arguments["type_needle_v"]
    lines: list[str] = []
    while len(lines) < length // 4:
        key = drawn(settings.arguments["type_needle_k"], rng)
        if key not in taken:
            lines.append(needle(kind, key, drawn(kind, rng)))
    return lines


def _distinct(draw: Callable[[], str], count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[draw()] = None
    return list(found)
