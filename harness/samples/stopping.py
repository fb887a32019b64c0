"""Texts that end a generation, whatever tokens they are written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StopTexts:
    """For `Row.until`: says whether the last token completed one of ``texts`` (none of them empty)."""

    texts: tuple[str, ...]
    tokenizer: Any

    def __call__(self, tokens: Sequence[int]) -> bool:
        # A token that says anything is at least one byte, so a text ends in the last token only if it lies within so
        # many; two more, because the first token of a piece may be decoded without its leading space.
        reach = max(len(text.encode()) for text in self.texts) + 2
        said = self.tokenizer.decode(tokens[-reach:], skip_special_tokens=True)
        return any(text in said for text in self.texts)


def before(text: str, stops: Sequence[str]) -> str:
    """What stands before each of ``stops``, taken in turn."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text
