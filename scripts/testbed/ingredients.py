"""What the mixture is made of: the writers of the mini suite with numbers of facts that vary, prose, and copying."""

from __future__ import annotations

import random
from collections.abc import Callable

from tasks.mini import (
    code,
    few_shot,
    multi_doc_qa,
    passage_count,
    passage_retrieval,
    reasoning,
    ruler,
    single_doc_qa,
    summary,
)
from tasks.mini.exercise import Exercise, Question
from tasks.mini.material import Material

Writer = Callable[[random.Random, Material, int], Exercise]
# Separators of the dense lists that teach induction; "" makes the key itself the question.
SEPARATORS = ("", ":", " is", " =", " ->", " means", " is:")


def _facts(rng: random.Random, source: Material, size: int) -> Exercise:
    return single_doc_qa.write(rng, source, size, facts=rng.randint(1, min(8, 1 + size // 160)))


def _hops(rng: random.Random, source: Material, size: int) -> Exercise:
    return multi_doc_qa.write(rng, source, size, chains=rng.randint(1, min(4, 1 + size // 400)))


def _summary(rng: random.Random, source: Material, size: int) -> Exercise:
    return summary.write(rng, source, size, points=rng.randint(1, 3) if size < 1200 else 3)


def _multivalue(rng: random.Random, source: Material, size: int) -> Exercise:
    return ruler.write_multivalue(rng, source, size, keys=1 if size < 900 else 2)


def _chains(rng: random.Random, source: Material, size: int) -> Exercise:
    return reasoning.write(rng, source, size, chains=rng.randint(1, min(3, 1 + size // 300)))


def _pairs(rng: random.Random, source: Material, size: int) -> Exercise:
    """A dense list of keys of one or two words, with numbers or words for values."""
    count = max(size // 22, 2)
    keys = rng.sample(source.nouns, min(count, 60)) if count < 60 and rng.random() < 0.5 else source.keys(rng, count)
    values = source.numbers(rng, len(keys)) if rng.random() < 0.5 else rng.choices(source.nouns, k=len(keys))
    separator = rng.choice(SEPARATORS)
    asked = rng.sample(range(len(keys)), min(8, len(keys)))
    questions = [Question(keys[i] + separator, f" {values[i]}", (values[i],)) for i in asked]
    lines = (f"{key}{separator} {value}" for key, value in zip(keys, values, strict=True))
    return Exercise("\n".join(lines), tuple(questions), predictable=False)


def _again(rng: random.Random, source: Material, size: int) -> Exercise:
    """A passage, other text, and the passage again from its third word on."""
    passage = " ".join(source.text(rng, rng.randint(80, max(100, size // 3))).split())
    words = passage.split()
    begins = rng.randrange(max(len(words) - 8, 1))
    cue, rest = words[begins : begins + 3], words[begins + 3 : begins + 43]
    context = passage + "\n" + source.text(rng, max(size - len(passage), 20))
    return Exercise(context, (Question("Again: " + " ".join(cue), "".join(f" {word}" for word in rest), ()),))


def _prose(rng: random.Random, source: Material, size: int) -> Exercise:
    return Exercise(source.text(rng, size), ())


INGREDIENTS: dict[str, Writer] = {
    "facts": _facts,
    "hops": _hops,
    "summary": _summary,
    "few_shot": few_shot.write,
    "passage_retrieval": passage_retrieval.write,
    "passage_count": passage_count.write,
    "code": code.write,
    "multikey": ruler.write_multikey,
    "multivalue": _multivalue,
    "variables": ruler.write_variables,
    "chains": _chains,
    "pairs": _pairs,
    "again": _again,
    "prose": _prose,
}
