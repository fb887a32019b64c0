"""RULER's variable tracking: which variables a number reaches through a chain of assignments in noise."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from tasks.ruler.draft import Draft, Settings
from tasks.ruler.needles import among_lines
from tasks.templates import prompts

EXAMPLE = 500  # tokens of the answered example in front
LETTERS, EXAMPLE_LETTERS = 5, 3  # of a variable's name


def draft(settings: Settings, rng: random.Random, length: int, tokens: Callable[[str], int]) -> Draft:
    """One sample with RULER's answered example in front, which takes a quarter of short prompts at most."""
    shown = _chain(settings, rng, EXAMPLE_LETTERS)
    example = shown.fitted(tokens, min(EXAMPLE, length // 4)) or shown.prompt(shown.least)
    return _chain(settings, rng, LETTERS, f"{example}{shown.answer}{' '.join(shown.references)}\n")


def _chain(settings: Settings, rng: random.Random, letters: int, example: str = "") -> Draft:
    names: list[str] = []
    while len(names) <= settings.arguments["num_hops"]:
        name = "".join(rng.choices(string.ascii_uppercase, k=letters))
        if name not in (*names, "VAR"):
            names.append(name)
    value = rng.randrange(10000, 99999)
    lines = [f"VAR {names[0]} = {value}"]
    lines += [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
    places = sorted(rng.random() for _ in lines)  # a variable is known before it is copied
    return Draft(
        template=settings.template,
        answer_prefix=settings.answer_prefix,
        fields={"query": value, "num_v": len(names)},
        context=partial(among_lines, lines, places, [prompts("ruler")["noise_haystack"]]),
        least=len(lines),
        most=10**9,
        references=tuple(names),
        example=example,
    )
