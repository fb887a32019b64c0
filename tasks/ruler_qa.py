"""RULER's two question subsets: SQuAD and HotpotQA among other documents of the same data set (tasks.md 4.5)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, grid, nearest, repeats, sources_hash, whole
from tasks.data import DataTable, revision_of
from tasks.data.tables import Row, table
from tasks.metrics.answers import postprocessed, string_match_part
from tasks.ruler_samples import RulerDraft
from tasks.templates import FOLDER, prompts

DATA = {"qa_1": "squad/validation", "qa_2": "hotpotqa/validation"}


@dataclass(frozen=True)
class SourcedQuestion:
    """A question, its answers, and the documents that it needs; ``beside``: others of the same article."""

    query: str
    answers: tuple[str, ...]
    needs: tuple[int, ...]  # indices into the data set's documents
    beside: tuple[int, ...] = ()


@dataclass(frozen=True)
class RulerQA(Task):
    """RULER's question answering (qa_1 SQuAD 2.0, qa_2 HotpotQA): the documents of a question among many others.

    As many documents as fit a length, in random order: those that the question needs, then others of its article, then
    any. Score: 1 where one of the answers is contained in the prediction. Source: NVIDIA/RULER c3f5e3b4 (qa.py).
    Deviations: random draws are our own; sizes are found to one document; data lies in the hub's rows, not in the
    authors' files, with the same documents and questions.
    """

    name: ClassVar[str] = "ruler_qa"
    version: ClassVar[str] = "1"
    metrics: ClassVar[tuple[str, ...]] = ("string_match",)
    asks_last: ClassVar[bool] = True

    subset: str = "qa_1"
    lengths: tuple[int, ...] = (4096,)  # tokens, those to generate included
    repeats: int = 100  # questions for each length; RULER has 500
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    chat: bool = True  # whether the prompt is a user message, for models with a chat format
    seed: int = 42

    def __post_init__(self) -> None:
        if self.subset not in list(DATA):
            raise TaskError(f"ruler_qa has no subset '{self.subset}'. {nearest(str(self.subset), DATA)}")
        object.__setattr__(self, "lengths", grid("ruler_qa.lengths", self.lengths, 1))
        repeats("ruler_qa.repeats", self.repeats)
        whole("ruler_qa.seed", self.seed, 0)
        if self.chat not in (True, False):
            raise TaskError(f"ruler_qa.chat must be true or false; got {self.chat!r}.")

    @property
    def label(self) -> str:
        """``ruler_qa/qa_1``."""
        return f"{self.name}/{self.subset}"

    def revision(self) -> dict[str, str]:
        """The rows' file, the prompt and the code of the metric."""
        return {
            "data": revision_of(DATA[self.subset], self.data),
            "prompts": files_hash(FOLDER / "ruler.yaml"),
            "metrics": sources_hash(string_match_part),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """Questions in the file's order, each at every length; raises `TaskError` where the data is missing."""
        documents, questions = material(self.subset, table(DATA[self.subset], self.data))
        asked = list(enumerate(questions[: self.repeats]))
        return [
            self._sample(tokenizer, documents, each, at, length) for (at, each), length in product(asked, self.lengths)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """RULER's ``string_match_part`` of the post-processed prediction."""
        return {"string_match": string_match_part(postprocessed(prediction), sample.references)}

    def _sample(
        self, tokenizer: Tokenizer, documents: Sequence[str], asked: SourcedQuestion, at: int, length: int
    ) -> Sample:
        settings = prompts("ruler")["base"]["qa"]
        new = int(settings["tokens_to_generate"])
        draft = RulerDraft(
            settings["template"],
            settings["answer_prefix"],
            {"query": asked.query},
            lambda size: shown(documents, asked, size, f"ruler_qa/{self.seed}/{self.subset}/{length}/{at}"),
            least=len(asked.needs),
            most=len(documents),
            references=asked.answers,
        )
        size = self._fitted(draft, tokenizer, length - new)
        if size is None:
            raise TaskError(
                f"ruler_qa.lengths has {length}, too short for the documents of question {at + 1} of {self.subset}: "
                "use more."
            )
        return Sample(
            id=f"L{length}-q{at}",
            prompt=draft.prompt(size),
            question=draft.question,
            answer_prefix=draft.answer,
            references=asked.answers,
            max_new_tokens=new,
            chat=self.chat,
            document=f"question {at}",
            axes={"length": length, "documents": size},
        )

    def _fitted(self, draft: RulerDraft, tokenizer: Tokenizer, limit: int) -> int | None:
        """As many documents as fit; all of them where the data set is small, as RULER does."""
        if len(tokenizer.encode(draft.prompt(draft.most) + draft.answer)) <= limit:
            return draft.most
        return draft.fitted(lambda text: len(tokenizer.encode(text)), limit)


def shown(documents: Sequence[str], asked: SourcedQuestion, size: int, seed: str) -> str:
    """So many documents as the prompt shows them: those that are needed, others of the article, then any."""
    order = random.Random(f"{seed}/others")
    known = {*asked.needs, *asked.beside}
    others = [index for index in range(len(documents)) if index not in known]
    beside = order.sample(asked.beside, len(asked.beside))
    chosen = [*asked.needs, *beside, *order.sample(others, min(len(others), max(0, size - len(known))))][:size]
    random.Random(seed).shuffle(chosen)
    return "\n\n".join(f"Document {number}:\n{documents[index]}" for number, index in enumerate(chosen, start=1))


def material(subset: str, read: DataTable) -> tuple[list[str], list[SourcedQuestion]]:
    """The distinct documents of a data set, sorted, and its questions that have an answer."""
    return _squad(read.rows) if subset == "qa_1" else _hotpotqa(read.rows)


def _squad(rows: Sequence[Row]) -> tuple[list[str], list[SourcedQuestion]]:
    documents = sorted({str(row["context"]) for row in rows})
    place = {text: index for index, text in enumerate(documents)}
    of_article: dict[str, dict[int, None]] = {}
    for row in rows:
        of_article.setdefault(str(row["title"]), {})[place[row["context"]]] = None
    questions = []
    for row in rows:
        own, answers = place[row["context"]], tuple(dict.fromkeys(row["answers"]["text"]))
        if answers:  # SQuAD 2.0 asks questions without one
            beside = tuple(index for index in of_article[row["title"]] if index != own)
            questions.append(SourcedQuestion(str(row["question"]), answers, (own,), beside))
    return documents, questions


def _hotpotqa(rows: Sequence[Row]) -> tuple[list[str], list[SourcedQuestion]]:
    written = [_paragraphs(row["context"]) for row in rows]
    documents = sorted({text for texts in written for text in texts})
    place = {text: index for index, text in enumerate(documents)}
    questions = [
        SourcedQuestion(
            str(row["question"]), (str(row["answer"]),), tuple(place[text] for text in dict.fromkeys(texts))
        )
        for row, texts in zip(rows, written, strict=True)
    ]
    return documents, questions


def _paragraphs(context: Mapping[str, Sequence[object]]) -> list[str]:
    pairs = zip(context["title"], context["sentences"], strict=True)
    return [f"{title}\n{''.join(map(str, sentences))}" for title, sentences in pairs]  # type: ignore[call-overload]
