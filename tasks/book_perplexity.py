"""Perplexity on held-out novels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tasks import revision
from tasks.base import Mode, Sample, Task, TaskError, Tokenizer
from tasks.checks import whole
from tasks.novels import BOOKS, Novel, novels


@dataclass(frozen=True)
class BookPerplexity(Task):
    """Book perplexity: how well the text of held-out novels is predicted, in nats per token.

    Windows of ``length`` tokens (special tokens included) start at paragraphs, evenly spaced in each novel,
    half a distance in: prefaces are unlike the rest. They take turns over the novels, so that every prefix
    covers them evenly. A prompt is longer than its window; the runner keeps the first ``truncate_to`` tokens.
    """

    name: ClassVar[str] = "book_perplexity"
    version: ClassVar[str] = "1"
    mode: ClassVar[Mode] = "perplexity"
    metrics: ClassVar[tuple[str, ...]] = ("nll",)

    length: int = 1024  # tokens
    windows: int = 8  # over all novels

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole("book_perplexity.length", self.length, 2))
        object.__setattr__(self, "windows", whole("book_perplexity.windows", self.windows, 1))

    def revision(self) -> dict[str, str]:
        """The novels."""
        return {"data": revision.of_files(*BOOKS)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One per window, the books in turn."""
        return [self._sample(tokenizer, window) for window in range(self.windows)]

    def _sample(self, tokenizer: Tokenizer, window: int) -> Sample:
        turn, book = divmod(window, len(novels()))
        novel = novels()[book]
        in_novel = len(range(book, self.windows, len(novels())))
        start, end = (_place(novel, turn, in_novel), _place(novel, turn + 1, in_novel))
        return Sample(
            id=f"{novel.name}-w{turn}",
            prompt=self._enough(tokenizer, novel, start, end),
            truncate_to=self.length,
            # A cluster of its own: windows never overlap, and four novels are too few clusters for an interval.
            document=f"{novel.name}@{start}",
            axes={"book": novel.name, "length": self.length},
        )

    def _enough(self, tokenizer: Tokenizer, novel: Novel, start: int, end: int) -> str:
        """Text from ``start`` that encodes to at least ``length`` tokens and stays before the next window."""
        characters = 8 * self.length
        while True:
            text = novel.text[start : min(start + characters, end)]
            # One token more than asked for, since the last one may be cut short where the text is.
            if len(tokenizer.encode(text)) > self.length:
                return text
            if start + characters >= end:
                raise TaskError(
                    f"book_perplexity: {self.windows} windows of {self.length} tokens do not fit beside each "
                    f"other in {novel.name}. Ask for fewer or shorter ones."
                )
            characters *= 2


def _place(novel: Novel, turn: int, count: int) -> int:
    """The character where window number ``turn`` of ``count`` starts; the novel's end after the last."""
    if turn == count:
        return len(novel.text)
    return novel.paragraph(near=len(novel.text) * (2 * turn + 1) // (2 * count))
