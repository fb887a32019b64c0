"""LongBench and LongBench-E: 21 subsets, their official prompts, post-processing and scores (tasks.md section 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from itertools import chain, zip_longest
from typing import Any, ClassVar

from tasks.base import WHOLE_CONTEXT, Sample, Task, TaskError, Tokenizer, sources_hash, texts_hash, whole
from tasks.data import DataTable, revision_of
from tasks.data.tables import table
from tasks.longbench_subsets import LongBenchSubset, subset
from tasks.metrics.answers import normalised
from tasks.metrics.longbench_scores import item_score
from tasks.metrics.overlap import chinese_words, rouge_l
from tasks.templates import question_of

BUCKETS = ("0-4k", "4-8k", "8k+")  # LongBench-E's, of the column `length`: below 4000, below 8000, the rest

# What decides a score besides LongBench's own scorer: an edit of another score leaves these cells as they are.
SCORED_BY: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "qa_f1": (item_score, normalised),
    "qa_f1_zh": (item_score, chinese_words),
    "rouge_l": (item_score, rouge_l),
    "rouge_l_zh": (item_score, rouge_l),
    "classification": (item_score,),
    "count": (item_score,),
    "retrieval": (item_score,),
    "retrieval_zh": (item_score,),
    "code_sim": (item_score,),
}


@dataclass(frozen=True)
class LongBench(Task):
    """LongBench: one of 21 subsets of questions, summaries, few-shot tasks and code over long contexts.

    The official prompt is filled with the row, cut in the middle down to ``max_length`` tokens, put into the model's
    chat format except in few-shot and code subsets, and answered greedily. Scores are the official ones, in [0, 1]:
    the best over the answers, in few-shot subsets of the first line only. With ``extended`` the rows are those of
    LongBench-E, grouped by their length in words.

    ``max_length`` is open in the papers (tasks.md 2.3): 31500 in SnapKV's and AdaKV's code, 3500, 7500 and 15500 for
    models with shorter contexts; None cuts only what the model has no positions for. ``chat`` None is the official
    choice; True and False are there because published Qwen2.5 numbers look as if they had been made with the other one.
    ``max_new_tokens`` None is the official number too; fewer make a summary affordable, and its scores no longer
    LongBench's.

    Source: THUDM/LongBench 2e00731f (pred.py, eval.py, metrics.py). Deviation: rows keep the file's order, which has
    no effect, and those of LongBench-E alternate between its buckets, so that ``limit`` sees all lengths.
    """

    name: ClassVar[str] = "longbench"
    version: ClassVar[str] = "1"
    asks_last: ClassVar[bool] = True

    subset: str = "narrativeqa"
    extended: bool = False  # LongBench-E
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    max_length: int | None = None  # tokens
    chat: bool | None = None
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.extended not in (True, False):
            raise TaskError(f"longbench.extended must be true or false; got {self.extended!r}.")
        if self.chat not in (None, True, False):
            raise TaskError(f"longbench.chat must be null, true or false; got {self.chat!r}.")
        subset(self.subset, self.extended)
        if self.max_length is not None:
            whole("longbench.max_length", self.max_length, 2)
        if self.max_new_tokens is not None:
            whole("longbench.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``longbench/qasper``, of LongBench-E ``longbench/qasper_e``."""
        return f"{self.name}/{self.subset}" + "_e" * self.extended

    @property
    def metrics(self) -> tuple[str, ...]:
        """The one metric that LongBench gives the subset."""
        return (self._subset.metric,)

    @property
    def _subset(self) -> LongBenchSubset:
        return subset(self.subset, self.extended)

    def revision(self) -> dict[str, str]:
        """The rows' file, the subset's prompt with all that the table says of it, and the code of its metric."""
        return {
            "data": revision_of(self.label, self.data),
            "prompts": texts_hash(*map(str, astuple(self._subset))),
            "metrics": sources_hash(*SCORED_BY[self._subset.metric]),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """The rows in the file's order; of LongBench-E one of each bucket in turn."""
        read = table(self.label, self.data)
        names = numbered(str(row["_id"]) for row in read.rows)
        samples = [self._sample(read, index, name) for index, name in enumerate(names)]
        return in_turn(samples) if self.extended else samples

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """The official score of the subset, the best over the answers."""
        score = item_score(self.subset, prediction, sample.references, sample.details["classes"])
        return {self._subset.metric: score}

    def _sample(self, read: DataTable, index: int, name: str) -> Sample:
        row, kind = read.rows[index], self._subset
        self._refuse_foreign(row, read.place(index))
        return Sample(
            id=name,
            prompt=kind.prompt.format(context=row["context"], input=row["input"]),
            question=question_of(kind.prompt, "context", input=row["input"]),
            references=tuple(row["answers"]),
            max_new_tokens=self.max_new_tokens or kind.max_new_tokens,
            min_new_tokens=int(kind.stop_at_newline),
            stop_tokens=("\n",) * kind.stop_at_newline,
            chat=kind.chat if self.chat is None else self.chat,
            longest=self.max_length or WHOLE_CONTEXT,
            document=texts_hash(row["context"]),  # several questions may share a context
            axes={"length": row["length"], "language": row["language"]}
            | ({"bucket": bucket(row["length"])} if self.extended else {}),
            details={"classes": tuple(row["all_classes"] or ())},
        )

    def _refuse_foreign(self, row: Mapping[str, Any], place: str) -> None:
        kind = self._subset
        if "answer_prefix" in row:
            raise TaskError(
                f"{place} has a column 'answer_prefix': in this rewritten copy the context already holds the "
                "instruction, and the official prompt would repeat it. Fetch the official data.zip with "
                "'python -m scripts.fetch_data longbench --from hub'."
            )
        if row["dataset"] not in (self.subset, f"{self.subset}_e"):
            raise TaskError(f"{place} is a row of '{row['dataset']}', not of '{self.subset}': fetch the file again.")
        if not kind.speaks(row["language"]):
            raise TaskError(
                f"{place} is in the wrong language: '{row['language']}', where {self.subset} is in '{kind.language}'. "
                "Fetch the file again."
            )
        if kind.metric == "classification" and not row["all_classes"]:
            raise TaskError(f"{place} names no classes in 'all_classes', which {self.subset} is scored by.")


def bucket(length: int) -> str:
    """The bucket of LongBench-E for a length in words."""
    return BUCKETS[(length >= 4000) + (length >= 8000)]


def numbered(names: Iterable[str]) -> list[str]:
    """The names in their order; one that has been there gets its count: ``a``, ``b``, ``a-2``."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique


def in_turn(samples: list[Sample]) -> list[Sample]:
    """One sample of each bucket in turn, until all are there; within a bucket in the order given."""
    piles = ([sample for sample in samples if sample.axes["bucket"] == name] for name in BUCKETS)
    return [sample for sample in chain.from_iterable(zip_longest(*piles)) if sample is not None]
