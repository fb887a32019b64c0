"""Lost in the Middle: answers and values at the start, in the middle and at the end of a context (tasks.md 6.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, grid, nearest, sources_hash, texts_hash, whole
from tasks.data import revision_of
from tasks.data.tables import table
from tasks.metrics.answers import best_subspan_em, exact_match, string_match_all
from tasks.templates import FOLDER, fill, prompts, question_of

POSITIONS = (0, 4, 9)  # of the gold document, from 0: those that there are files for
SIZES = (75, 140)  # numbers of key-value pairs that there are files for
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
    asks_last: ClassVar[bool] = True

    gold_at: tuple[int, ...] = POSITIONS
    wording: str = "official"
    questions: int | None = None
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    chat: bool = True
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
            "data": texts_hash(*files),
            "prompts": files_hash(FOLDER / "lost_in_the_middle.yaml"),
            "metrics": sources_hash(best_subspan_em),
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
        answer = prediction.strip()  # as the official generation script does
        scores = {
            "best_subspan_em": best_subspan_em(answer, sample.references),
            "exact_match": exact_match(answer, sample.references[:1]),
        }
        return {name: scores[name] for name in self.metrics}

    def _sample(self, row: Mapping[str, Any], index: int, position: int) -> Sample:
        return Sample(
            id=f"q{index}-gold{position}",
            prompt=question_prompt(self.wording, row["question"], row["ctxs"]),
            question=question_after(self.wording, row["question"]),
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


def question_after(wording: str, question: str) -> str:
    """The end of that prompt, after the documents."""
    texts = prompts("lost_in_the_middle")
    if wording == "buzz":
        return question_of(texts["buzz_variant"]["prompt"], "documents", question=question)
    return question_of(texts[_KEYS[wording]], "search_results", question=question)


def _dataset(position: int) -> str:
    return f"lost_in_the_middle/10_documents_gold_at_{position}"


@dataclass(frozen=True)
class KeyValueRetrieval(Task):
    """Key-value retrieval: the value of one key among 75 or 140 pairs of random UUIDs in a JSON object.

    ``gold_at``: positions, from 0, to which the asked pair is moved, as percent of the way from first to last. Metric:
    ``contains``, the value occurs in the prediction in any case. With ``query_aware`` the key is named before the
    pairs too. ``examples`` are the first of the file; null = all. An example is one document in statistics.

    Source: nelson-liu/lost-in-the-middle 29b8a6d0 (kv_retrieval_data), tasks.md 6.2.
    """

    name: ClassVar[str] = "key_value"
    version: ClassVar[str] = "1"
    asks_last: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("contains",)

    pairs: int = 75
    gold_at: tuple[int, ...] = (0, 50, 100)  # percent
    examples: int | None = None
    query_aware: bool = False
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    chat: bool = True
    max_new_tokens: int = 100

    def __post_init__(self) -> None:
        if self.pairs not in SIZES:
            raise TaskError(f"key_value.pairs must be 75 or 140; got {self.pairs!r}.")
        object.__setattr__(self, "gold_at", grid("key_value.gold_at", self.gold_at, 0, 100))
        for field in ("query_aware", "chat"):
            if getattr(self, field) not in (True, False):
                raise TaskError(f"key_value.{field} must be true or false; got {getattr(self, field)!r}.")
        if self.examples is not None:
            whole("key_value.examples", self.examples, 1)
        whole("key_value.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``key_value/75``."""
        return f"{self.name}/{self.pairs}"

    @property
    def _dataset(self) -> str:
        return f"lost_in_the_middle/kv_{self.pairs}"

    def revision(self) -> dict[str, str]:
        """The file of pairs, the prompts, and the code of the metric."""
        return {
            "data": revision_of(self._dataset, self.data),
            "prompts": files_hash(FOLDER / "lost_in_the_middle.yaml"),
            "metrics": sources_hash(string_match_all),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Examples outermost: every prefix covers the positions evenly."""
        read = table(self._dataset, self.data)
        return [
            self._sample(row, index, percent, read.place(index))
            for index, row in enumerate(read.rows[: self.examples])
            for percent in self.gold_at
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """1 if the value is contained in the prediction, in any case."""
        return {"contains": string_match_all(prediction, sample.references)}

    def _sample(self, row: Mapping[str, Any], index: int, percent: int, place: str) -> Sample:
        others = [pair for pair in row["ordered_kv_records"] if pair[0] != row["key"]]
        if len(others) + 1 != len(row["ordered_kv_records"]):
            raise TaskError(f"{place}: the key {row['key']!r} must stand once in 'ordered_kv_records'.")
        position = round(len(others) * percent / 100)
        others.insert(position, [row["key"], row["value"]])
        return Sample(
            id=f"example-{index}-gold{percent}",
            prompt=pairs_prompt(others, row["key"], self.query_aware),
            question=question_of(prompts("lost_in_the_middle")["kv_retrieval"], "formatted_kv_records", key=row["key"]),
            references=(row["value"],),
            max_new_tokens=self.max_new_tokens,
            chat=self.chat,
            document=f"example-{index}",
            axes={"gold_at": percent, "pairs": len(others)},
        )


def pairs_prompt(records: Sequence[Sequence[str]], key: str, query_aware: bool = False) -> str:
    """The official prompt: pairs as the lines of one JSON object."""
    texts = prompts("lost_in_the_middle")
    form = texts["kv_record"]
    lines = [
        fill(form["other"] if number else form["first"], key=name, value=value)
        for number, (name, value) in enumerate(records)
    ]
    wording = "kv_retrieval_with_query_aware_contextualization" if query_aware else "kv_retrieval"
    return fill(texts[wording], formatted_kv_records=form["separator"].join(lines) + form["end"], key=key)
