"""What the mixture is made of: the writers of the mini suite with numbers of facts that vary, prose, and copying."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from math import isqrt

from tasks.haystack import Novel
from tasks.mini import exercises
from tasks.mini.material import Exercise, ExerciseMaterial, FactForm, Question, asked_of, material
from tasks.niah import DIGITS

SHORTEST_LINE = 16  # characters with a key of its own
FEWEST = 8  # nouns at the least: some exercises draw several at once, whatever their size
ORDINARY = 2500  # words that exercises may be varied with
CLOSE = 150  # numbers in a row that close ones are drawn from, or as many as there may be lines
Writer = Callable[[random.Random, ExerciseMaterial, int], Exercise]
# Separators of the dense lists that teach induction; "" makes the key itself the question.
SEPARATORS = ("", ":", " is", " =", " ->", " means", " is:")


def _facts(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    return exercises.write_single_doc_qa(rng, source, size, facts=rng.randint(1, min(8, 1 + size // 160)))


def _hops(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    return exercises.write_multi_doc_qa(rng, source, size, chains=rng.randint(1, min(4, 1 + size // 400)))


def _summary(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    return exercises.write_summary(rng, source, size, points=rng.randint(1, 3) if size < 1200 else 3)


def _multivalue(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    return exercises.write_multivalue(rng, source, size, keys=1 if size < 900 else 2)


def _chains(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    return exercises.write_reasoning(rng, source, size, chains=rng.randint(1, min(3, 1 + size // 300)))


def _listed_facts(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Facts line by line without a book around them, of one form or of several: which value belongs to which key."""
    forms = source.facts if rng.random() < 0.5 else (rng.choice(source.facts),)
    count = max(size // 60, 2)
    lines, asked = [], []
    for key, number in zip(source.keys(rng, count), source.numbers(rng, count), strict=True):
        form = rng.choice(forms)
        value = number if form.value == "number" else rng.choice(source.names)
        lines.append(form.needle.format(k=key, v=value))
        asked.append(Question(form.question.format(k=key), f" {value}", (value,)))
    return Exercise("\n".join(lines), tuple(rng.sample(asked, asked_of(count))), predictable=False)


def _listed_hops(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Owners and codes without a book around them: which name belongs to which thing, and which code to which name."""
    return exercises.write_multi_doc_qa(rng, source, 0, chains=min(max(size // 270, 2), 12))


def _listed_multivalue(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Values with their ordinals line by line, asked for one by one: a value belongs to a key and an ordinal."""
    lines, asked = [], []
    for key in source.keys(rng, min(max(size // 180, 2), 16)):
        for line, value in exercises.values_in_order(rng, source, key):
            lines.append(line)
            asked.append(Question(line[: line.rindex(f" {value}")], f" {value}", (value,)))
    rng.shuffle(lines)
    return Exercise("\n".join(lines), tuple(rng.sample(asked, asked_of(len(asked)))), predictable=False)


def _sums(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Sums of two digits alone, as `reasoning_mini` ends with them."""
    pairs = [(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(min(max(size // 16, 2), 24))]
    asked = [Question(f"Sum: {a} + {b} =", f" {a + b}.", (f"{a + b}.",)) for a, b in pairs]
    return Exercise("", tuple(asked), predictable=False)


def _listed_count(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Passages of a few words: how many there are."""
    return exercises.write_passage_count(rng, source, rng.randint(40, max(min(size, 500), 41)))


def _pairs(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """A dense list of keys of one or two words, with numbers or words for values."""
    count = max(size // 22, 2)
    single = count <= len(source.nouns) and rng.random() < 0.5
    keys = rng.sample(source.nouns, count) if single else source.keys(rng, count)
    values = source.numbers(rng, len(keys)) if rng.random() < 0.5 else rng.choices(source.nouns, k=len(keys))
    separator = rng.choice(SEPARATORS)
    asked = rng.sample(range(len(keys)), asked_of(len(keys)))
    questions = [Question(keys[i] + separator, f" {values[i]}", (values[i],)) for i in asked]
    lines = (f"{key}{separator} {value}" for key, value in zip(keys, values, strict=True))
    return Exercise("\n".join(lines), tuple(questions), predictable=False)


def _again(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """A passage, other text, and the passage again from its third word on."""
    passage = " ".join(source.text(rng, rng.randint(80, max(100, size // 3))).split())
    words = passage.split()
    begins = rng.randrange(max(len(words) - 8, 1))
    cue, rest = words[begins : begins + 3], words[begins + 3 : begins + 43]
    context = passage + "\n" + source.text(rng, max(size - len(passage), 20))
    return Exercise(context, (Question("Again: " + " ".join(cue), "".join(f" {word}" for word in rest), ()),))


# What exercises of other words look like in few-shot lists; {a} and {b} are words, too.
LABEL_LINES = (
    "{a}: {k} {b}: {v}", "{a}: {k} {b}: {v}", "{a} {k} {b}: {v}", "{a}: {k}, {b}: {v}", "{a} {k} {b} {v}",
    "{k} {b} {v}", "The {k} {b} {v}", "{k}, {v}", "{a} - {k} - {v}",
)  # fmt: skip

# The same with more tokens between word and label: one word that the tokenizer cuts, as it cuts "Class", or two.
FAR_LABEL_LINES = (
    "{a}: {k} {b}: {v}", "{a}: {k} {b}: {v}", "{a}: {k} {b}: {v}", "{a} {k} {b}: {v}", "The {k} {b} {v}",
    "{a}: {k} {b} {c}: {v}", "{a}: {k} {b}{c}: {v}", "The {k} {b} {c} {v}",
)  # fmt: skip


def _with_words(lines: Iterable[str], **words: str) -> tuple[str, ...]:
    """Lines with their own words in place; ``{k}`` and ``{v}`` stay open."""
    return tuple(line.format(**words, k="{k}", v="{v}") for line in lines)


def _far_few_shot(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Labels some tokens behind their words."""
    a, b, c = rng.sample(ordinary(source.novels), 3)
    lines = _with_words(FAR_LABEL_LINES, a=a.title(), b=b.title(), c=c)  # few words with a capital are one token
    return exercises.write_few_shot(rng, replace(source, label_lines=lines), size)


def _varied(write: Writer) -> Writer:
    """The same exercise with ordinary words for keys, names and labels, so that words are read and not remembered.

    Few words make many keys: one word alone does not tell which is meant.
    """

    def varied(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
        words = rng.sample(ordinary(source.novels), 204)
        most = 2 * (size // SHORTEST_LINE + 8)  # so many keys can be asked for, and as many again must be there
        firsts = rng.randint(min(isqrt(most) + 1, 60), 60)
        seconds = rng.randint(min(most // firsts + FEWEST, 80), 80)
        second = rng.choice([words[-2], words[-2].title()])
        changed = replace(
            source,
            adjectives=tuple(words[:firsts]),
            nouns=tuple(words[60 : 60 + seconds]),
            names=tuple(words[140:180]),
            labels=tuple(words[180:200]),
            label_lines=_with_words(LABEL_LINES, a=words[-1].title(), b=second),
        )
        return write(rng, changed, size)

    return varied


def _close(write: Writer) -> Writer:
    """The same exercise with numbers that begin alike, so that each digit has to be looked up under its key.

    Where two values begin with the same digit, what followed it before tells nothing about which of them is meant.
    """

    def close(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
        width = max(CLOSE, size // SHORTEST_LINE)
        first = rng.randrange(10**DIGITS - width)
        return write(rng, replace(source, among=range(first, first + width)), size)

    return close


def _only(write: Writer, wanted: Callable[[FactForm], bool]) -> Writer:
    """The same exercise with facts of some forms alone."""

    def chosen(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
        return write(rng, replace(source, facts=tuple(filter(wanted, source.facts))), size)

    return chosen


def _asked(form: FactForm) -> bool:
    """Whether the question is worded otherwise than the fact: what stood before the value does not stand before it."""
    return not form.needle.startswith(form.question)


def _far(form: FactForm) -> bool:
    """Whether it is, and has words between key and answer: one, or a whole sentence."""
    return _asked(form) and form.question.partition("{k}")[2].startswith(" ")


@cache
def ordinary(novels: tuple[Novel, ...]) -> list[str]:
    """Frequent words of the novels without those that are held out, by frequency."""
    test = material("test")
    held_out = {*test.adjectives, *test.nouns, *test.labels}
    counts = Counter(word for novel in novels for word in re.findall(r"\b[a-z]{3,9}\b", novel.text))
    return [word for word, _ in counts.most_common(ORDINARY) if word not in held_out]


def _prose(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    return Exercise(source.text(rng, size), ())


INGREDIENTS: dict[str, Writer] = {
    "facts": _facts,
    "hops": _hops,
    "summary": _summary,
    "few_shot": exercises.write_few_shot,
    "passage_retrieval": exercises.write_passage_retrieval,
    "passage_count": exercises.write_passage_count,
    "code": exercises.write_code,
    "multikey": exercises.write_multikey,
    "multivalue": _multivalue,
    "variables": exercises.write_variables,
    "chains": _chains,
    "pairs": _pairs,
    "again": _again,
    "prose": _prose,
}
# The same formats with fewer forms or other words: for mixtures only.
LISTED = {"listed_facts": _listed_facts, "listed_hops": _listed_hops, "listed_multivalue": _listed_multivalue}
FAR = {"far_few_shot": _far_few_shot}
CHOSEN = {
    name.replace("facts", f"{kind}_facts"): _only(write, wanted)
    for name, write in {"facts": _facts, "listed_facts": _listed_facts}.items()
    for kind, wanted in {"asked": _asked, "far": _far}.items()
}
WORDED: dict[str, Writer] = {
    name: INGREDIENTS[name]
    for name in ("facts", "hops", "few_shot", "code", "multikey", "multivalue", "variables", "chains", "pairs")
}
NUMBERED = ("facts", "far_facts", "listed_far_facts", "multikey", "multivalue")  # what asks for one of many numbers
VARIANTS: dict[str, Writer] = (
    LISTED
    | {"listed_count": _listed_count, "sums": _sums}
    | FAR
    | CHOSEN
    | {f"close_{name}": _close((INGREDIENTS | CHOSEN)[name]) for name in NUMBERED}
    | {f"varied_{name}": _varied(write) for name, write in (WORDED | LISTED | FAR | CHOSEN).items()}
)
WRITERS = INGREDIENTS | VARIANTS
