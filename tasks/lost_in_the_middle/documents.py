"""Questions over ten documents, one of which holds the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from tasks import revision
from tasks.base import Sample, Task, TaskError, Tokenizer
from tasks.checks import grid, nearest, whole
from tasks.data import revision_of, table
from tasks.metrics.exact import best_subspan_em, exact_match
from tasks.templates import FOLDER, fill, prompts

POSITIONS = (0, 4, 9)  # of the gold document, from 0: what there are files for
WORDINGS = ("official", "query_aware", "ordered_randomly", "buzz")
_KEYS = {
    "official": "qa",
    "query_aware": "qa_with_query_aware_contextualization",
    "ordered_randomly": "qa_ordered_randomly",
}


@dataclass(frozen=True)
class DocumentQuestions(Task):
    """Lost in the middle: questions over ten documents with the answer in the first, fifth or last one.

    Metrics: ``best_subspan_em`` (an answer is contained in the first line, as in SQuAD normalised), the official
    score, and ``exact_match``, BUZZ's, with its first answer only. ``wording``: the official prompt, its two variants,
    or BUZZ's. A question is one document in statistics, at all positions. ``questions`` are the first of the files, 40
    in BUZZ's script; null = all.

    Source: nelson-liu/lost-in-the-middle 29b8a6d0, JunqiZhao888/buzz-llm e6f5e3e9, tasks.md 6.2. Deviations: Llama-2's
    chat text is left to the model's own format (``chat``); prompts above 4,096 tokens are not skipped. The files
    carried in the package are NOT the official ones (`tasks/data/carried/PROVENANCE.md`): other distractors.
    """

    name: ClassVar[str] = "lost_in_the_middle"
    version: ClassVar[str] = "1"

    gold_at: tuple[int, ...] = POSITIONS
    wording: str = "official"
    questions: int | None = None
    data: str = "auto"  # where the rows lie, see `tasks.data.table`
    chat: bool = False
    max_new_tokens: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "gold_at", grid("lost_in_the_middle.gold_at", self.gold_at, 0))
        for position in self.gold_at:
            if position not in POSITIONS:
                raise TaskError(f"lost_in_the_middle.gold_at has {position}; there are files for 0, 4 and 9 only.")
        if self.wording not in WORDINGS:
            raise TaskError(f"lost_in_the_middle knows no wording '{self.wording}'. {nearest(self.wording, WORDINGS)}")
        if self.chat not in (True, False):
            raise TaskError(f"lost_in_the_middle.chat must be true or false; got {self.chat!r}.")
        if self.questions is not None:
            whole("lost_in_the_middle.questions", self.questions, 1)
        whole("lost_in_the_middle.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``lost_in_the_middle``, with another prompt ``lost_in_the_middle/buzz``."""
        return self.name if self.wording == "official" else f"{self.name}/{self.wording}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The official score first; under BUZZ's prompt its own."""
        return ("exact_match", "best_subspan_em") if self.wording == "buzz" else ("best_subspan_em", "exact_match")

    def revision(self) -> dict[str, str]:
        """The files of the asked positions, the prompts, and the code of the metrics."""
        files = (revision_of(_dataset(position), self.data) for position in self.gold_at)
        return {
            "data": revision.of_text(*files),
            "prompts": revision.of_files(FOLDER / "lost_in_the_middle.yaml"),
            "metrics": revision.of_sources(best_subspan_em),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Questions outermost: every prefix covers the positions evenly."""
        at_each = [
            [
                self._sample(row, index, position)
                for index, row in enumerate(table(_dataset(position), self.data).rows[: self.questions])
            ]
            for position in self.gold_at
        ]
        return list(chain.from_iterable(zip(*at_each, strict=False)))

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """Both scores of the stripped prediction."""
        said = prediction.strip()  # as the official generation script does
        scores = {
            "best_subspan_em": best_subspan_em(said, sample.references),
            "exact_match": exact_match(said, sample.references[:1]),
        }
        return {name: scores[name] for name in self.metrics}

    def _sample(self, row: Mapping[str, Any], index: int, position: int) -> Sample:
        return Sample(
            id=f"q{index}-gold{position}",
            prompt=question_prompt(self.wording, row["question"], row["ctxs"]),
            references=tuple(row["answers"]),
            max_new_tokens=self.max_new_tokens,
            chat=self.chat,
            document=f"q{index}",
            axes={"gold_at": position, "documents": len(row["ctxs"])},
        )


def question_prompt(wording: str, question: str, documents: list[Mapping[str, Any]]) -> str:
    """The prompt of one question; documents are numbered from 1, in BUZZ's wording not at all."""
    texts = prompts("lost_in_the_middle")
    if wording == "buzz":
        form = texts["buzz_variant"]
        parts = [fill(form["document"], title=each.get("title", ""), text=each["text"]) for each in documents]
        return fill(form["prompt"], documents=form["document_join"].join(parts), question=question)
    numbered = [
        fill(texts["document"], index=number, title=each.get("title", ""), text=each["text"])
        for number, each in enumerate(documents, start=texts["index_starts_at"])
    ]
    joined = texts["document_join"].join(numbered)
    return fill(texts[_KEYS[wording]], search_results=joined, question=question)


def _dataset(position: int) -> str:
    return f"lost_in_the_middle/10_documents_gold_at_{position}"
