"""Tasks scored by perplexity (``nll``, nats per token): held-out novels, WikiText-2, and summaries of BookSum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from tasks.base import Likelihood, Mode, Sample, Task, TaskError, Tokenizer, files_hash, nearest, whole
from tasks.data import DataTable, revision_of
from tasks.data.tables import table
from tasks.haystack import BOOKS, Novel, novels

WIKITEXT = "wikitext2/validation"
STYLES = ("rows", "windows")  # how WikiText is read
BOOKSUM = "booksum/test"


@dataclass(frozen=True)
class BookPerplexity(Task):
    """Book perplexity: how well the text of held-out novels is predicted, in nats per token.

    Windows of ``length`` tokens (special tokens included) start at paragraphs, evenly spaced in each novel. The first
    starts half a distance in, since prefaces are unlike the rest. Samples alternate between the novels and, in each,
    between its parts, so that every prefix covers them evenly. The windows are the same at every seed, and seeds 0 to 3
    begin with another quarter of them. A prompt is longer than its window; the runner keeps its first ``truncate_to``
    tokens.
    """

    name: ClassVar[str] = "book_perplexity"
    version: ClassVar[str] = "2"
    mode: ClassVar[Mode] = "perplexity"
    metrics: ClassVar[tuple[str, ...]] = ("nll",)

    length: int = 1024  # tokens
    windows: int = 8  # over all novels
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole("book_perplexity.length", self.length, 2))
        object.__setattr__(self, "windows", whole("book_perplexity.windows", self.windows, 1))
        object.__setattr__(self, "seed", whole("book_perplexity.seed", self.seed, 0))

    def revision(self) -> dict[str, str]:
        """The novels."""
        return {"data": files_hash(*BOOKS)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One per window, alternating between the books, from the quarter on that the seed names."""
        first = self.windows * (self.seed % 4) // 4
        return [self._sample(tokenizer, (first + place) % self.windows) for place in range(self.windows)]

    def _sample(self, tokenizer: Tokenizer, window: int) -> Sample:
        turn, book = divmod(window, len(novels()))
        novel = novels()[book]
        in_novel = len(range(book, self.windows, len(novels())))
        turn = _far_apart(in_novel)[turn]
        start, end = (_window_start(novel, turn, in_novel), _window_start(novel, turn + 1, in_novel))
        return Sample(
            id=f"{novel.name}-w{turn}",
            prompt=self._enough(tokenizer, novel, start, end),
            truncate_to=self.length,
            # Each window is a cluster: beyond the mean of its novel, what a policy loses in one says nothing about the
            # next (docs/testbed.md). Novels are fixed and in equal shares; intervals are about these four.
            document=f"{novel.name}@{start}",
            axes={"book": novel.name, "length": self.length},
        )

    def _enough(self, tokenizer: Tokenizer, novel: Novel, start: int, end: int) -> str:
        """Text from ``start`` that encodes to at least ``length`` tokens and stays before the next window."""
        characters = 8 * self.length
        while True:
            text = novel.text[start : min(start + characters, end)]
            # One token more than needed, since the text may be cut within the last one.
            if len(tokenizer.encode(text)) > self.length:
                return text
            if start + characters >= end:
                raise TaskError(
                    f"book_perplexity: {self.windows} windows of {self.length} tokens do not fit beside each "
                    f"other in {novel.name}. Ask for fewer or shorter ones."
                )
            characters *= 2


@cache
def _far_apart(count: int) -> tuple[int, ...]:
    """The numbers below ``count`` in the order of their binary digits read backwards: 0, 4, 2, 6, 1, 5, 3, 7."""
    digits = max(count - 1, 1).bit_length()
    return tuple(sorted(range(count), key=lambda number: f"{number:0{digits}b}"[::-1]))


def _window_start(novel: Novel, turn: int, count: int) -> int:
    """The character where window number ``turn`` of ``count`` starts; the novel's end after the last."""
    if turn == count:
        return len(novel.text)
    return novel.paragraph(near=len(novel.text) * (2 * turn + 1) // (2 * count))


@dataclass(frozen=True)
class WikiText(Task):
    """WikiText-2 perplexity: how well Wikipedia's text is predicted, in nats per token.

    ``style``: ``rows`` reads each of the first ``rows`` lines of the validation split by itself, which is BUZZ's
    evaluation; ``windows`` reads the running text in windows of ``length`` tokens (special tokens included) that start
    at lines, follow each other and do not overlap. ``rows`` is then the greatest number of windows; null = all.

    Source: JunqiZhao888/buzz-llm e6f5e3e9, tasks.md 6.3. Deviations: BUZZ carries its cache over from row to row and
    never resets it, so that its budget fills up over short rows; here every row starts empty, and rows shorter than
    the budget are never evicted from. To see eviction, use ``windows``. Rows without two tokens (blank lines) predict
    nothing and are left out, but count among the first ``rows``. The carried text has ``<unk>`` for rare words
    (wikitext-2-v1, not raw): its perplexities do not compare with the paper's 7.382.
    """

    name: ClassVar[str] = "wikitext"
    version: ClassVar[str] = "1"
    mode: ClassVar[Mode] = "perplexity"
    metrics: ClassVar[tuple[str, ...]] = ("nll",)

    style: str = "rows"
    rows: int | None = 40
    length: int = 1024  # tokens of a window
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise TaskError(f"wikitext knows no style '{self.style}'. {nearest(str(self.style), STYLES)}")
        if self.rows is not None:
            whole("wikitext.rows", self.rows, 1)
        whole("wikitext.length", self.length, 2)

    @property
    def label(self) -> str:
        """``wikitext/rows``."""
        return f"{self.name}/{self.style}"

    def revision(self) -> dict[str, str]:
        """The text."""
        return {"data": revision_of(WIKITEXT, self.data)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """In the order of the text; `TaskError` where the text has fewer tokens than one window."""
        read = table(WIKITEXT, self.data)
        return self._lines(tokenizer, read) if self.style == "rows" else self._windows(tokenizer, read)

    def _lines(self, tokenizer: Tokenizer, read: DataTable) -> list[Sample]:
        texts = enumerate(row["text"] for row in read.rows[: self.rows])
        return [
            Sample(id=f"row-{index}", prompt=text, document=f"row-{index}")
            for index, text in texts
            if len(tokenizer.encode(text)) >= 2
        ]

    def _windows(self, tokenizer: Tokenizer, read: DataTable) -> list[Sample]:
        empty = len(tokenizer.encode(""))
        lines = [row["text"] for row in read.rows]
        windows: list[Sample] = []
        start, tokens = 0, empty
        for end, line in enumerate(lines, start=1):
            tokens += len(tokenizer.encode(line)) - empty
            # Lines may have more tokens alone than in running text, so the running text is counted again.
            if tokens <= self.length:
                continue
            text = "".join(lines[start:end])
            tokens = len(tokenizer.encode(text))
            if tokens > self.length:
                windows.append(self._window(text, start))
                start, tokens = end, empty
            if len(windows) == self.rows:
                break
        if not windows:
            raise TaskError(f"wikitext.length has {self.length}, more tokens than {read.file} holds; use less.")
        return windows

    def _window(self, text: str, line: int) -> Sample:
        return Sample(
            id=f"line-{line}",
            prompt=text,
            truncate_to=self.length,
            document=f"line-{line}",
            axes={"length": self.length},
        )


@dataclass(frozen=True)
class BookSum(Task):
    """BookSum perplexity: how well the reference summary is predicted from its chapter, in nats per token.

    The chapter is the prompt, cut in the middle beyond ``max_length`` tokens; the summary follows after a blank line,
    in a chat format as the answer. Metric: ``nll``, the mean over the tokens of one summary.

    Source: tasks.md 7, reading (b). CAOTE says only "generation perplexity", so prompt and averaging are ours. Reading
    (a), the perplexity of the books' own text, is the preset booksum_text of the task book_perplexity: windows of
    16,384 tokens of four novels of BookSum's test split. Deviation: summaries of one book are one document in
    statistics, since chapters of a book are not independent.
    """

    name: ClassVar[str] = "booksum"
    version: ClassVar[str] = "1"
    mode: ClassVar[Mode] = "continuations"
    metrics: ClassVar[tuple[str, ...]] = ("nll",)

    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    rows: int | None = None  # the first so many chapters; None = all
    max_length: int | None = None  # tokens
    chat: bool = False

    def __post_init__(self) -> None:
        if self.chat not in (True, False):
            raise TaskError(f"booksum.chat must be true or false; got {self.chat!r}.")
        if self.rows is not None:
            whole("booksum.rows", self.rows, 1)
        if self.max_length is not None:
            whole("booksum.max_length", self.max_length, 2)

    def revision(self) -> dict[str, str]:
        """The chapters and summaries."""
        return {"data": revision_of(BOOKSUM, self.data)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """The chapters in the file's order."""
        return [
            Sample(
                id=f"row-{index}",
                prompt=row["chapter"].strip(),
                continuations=("\n\n" * (not self.chat) + row["summary_text"].strip(),),
                chat=self.chat,
                longest=self.max_length,
                document=str(row["book_id"]).partition(".")[0],
            )
            for index, row in enumerate(table(BOOKSUM, self.data).rows[: self.rows])
        ]

    def score_continuations(self, sample: Sample, likelihoods: Sequence[Likelihood]) -> dict[str, float]:
        """Nats per token of the summary."""
        (found,) = likelihoods
        return {"nll": -found.nats / found.tokens}
