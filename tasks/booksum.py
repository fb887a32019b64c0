"""BookSum, read as in one of CAOTE's two possible meanings: the summary's perplexity given the chapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasks.base import Likelihood, Mode, Sample, Task, TaskError, Tokenizer
from tasks.checks import whole
from tasks.data import revision_of, table

DATASET = "booksum/test"


@dataclass(frozen=True)
class BookSum(Task):
    """BookSum perplexity: how well the reference summary is predicted from its chapter, in nats per token.

    The chapter is the prompt, cut in the middle beyond ``max_length`` tokens; the likelihood of the summary is asked
    after a blank line, in a chat format as the answer. Metric: ``nll``, the mean over the tokens of one summary.

    Source: tasks.md 7, reading (b): CAOTE says "generation perplexity" and nothing else, so prompt and averaging are
    ours. Reading (a), the perplexity of the books' own text, is the preset booksum_text of the task book_perplexity:
    windows of 16,384 tokens of four novels of BookSum's test split. Deviation: summaries of one book are one document
    in statistics, since chapters of a book are not independent.
    """

    name: ClassVar[str] = "booksum"
    version: ClassVar[str] = "1"
    mode: ClassVar[Mode] = "continuations"
    metrics: ClassVar[tuple[str, ...]] = ("nll",)

    data: str = "auto"  # where the rows lie, see `tasks.data.table`
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
        return {"data": revision_of(DATASET, self.data)}

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
            for index, row in enumerate(table(DATASET, self.data).rows[: self.rows])
        ]

    def score_continuations(self, sample: Sample, likelihoods: Sequence[Likelihood]) -> dict[str, float]:
        """Nats per token of the summary."""
        (found,) = likelihoods
        return {"nll": -found.nats / found.tokens}
