"""Perplexity on WikiText-2: row by row as BUZZ reads it, or in windows of the whole text (tasks.md 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tasks.base import Mode, Sample, Task, TaskError, Tokenizer
from tasks.checks import nearest, whole
from tasks.data import Table, revision_of, table

STYLES = ("rows", "windows")
DATASET = "wikitext2/validation"


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
    data: str = "auto"  # where the rows lie, see `tasks.data.table`

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
        return {"data": revision_of(DATASET, self.data)}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """In the order of the text; `TaskError` where the text has fewer tokens than one window."""
        read = table(DATASET, self.data)
        return self._lines(tokenizer, read) if self.style == "rows" else self._windows(tokenizer, read)

    def _lines(self, tokenizer: Tokenizer, read: Table) -> list[Sample]:
        texts = enumerate(row["text"] for row in read.rows[: self.rows])
        return [
            Sample(id=f"row-{index}", prompt=text, document=f"row-{index}")
            for index, text in texts
            if len(tokenizer.encode(text)) >= 2
        ]

    def _windows(self, tokenizer: Tokenizer, read: Table) -> list[Sample]:
        empty = len(tokenizer.encode(""))
        lines = [row["text"] for row in read.rows]
        windows: list[Sample] = []
        start, tokens = 0, empty
        for end, line in enumerate(lines, start=1):
            tokens += len(tokenizer.encode(line)) - empty
            # Lines may have more tokens alone than in running text, so what looks enough is counted again.
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
