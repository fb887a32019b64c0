"""HashEvict's tasks (tasks.md section 5): free responses scored by overlap, or one letter.

Prompts and lengths of the subsets are in ``prompts/hashevict.yaml``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, nearest, sources_hash, whole
from tasks.data import revision_of
from tasks.data.tables import table
from tasks.metrics.bert import BertScore
from tasks.metrics.judge import JUDGE_METRICS, Judge, judge_scores, refuse_without_key
from tasks.metrics.overlap import ROUGE_KINDS, rouge_scores
from tasks.multiple_choice import LETTERS, checked_letter, derived_choices, letter_of
from tasks.templates import FOLDER, fill, prompts

Row = Mapping[str, Any]

HASHEVICT_SEED = 100  # of the draw of rows
BERT = ("bert_precision", "bert_recall", "bert_f1")


@dataclass(frozen=True)
class HashEvictTask(Task):
    """HashEvict's tasks: GSM8K and MedQA as free response and multiple choice, GovReport and MultiNews at 16K.

    Every prompt is one stripped user message. Free responses: Google's ROUGE without stemmer against the whole
    reference and, with ``bert`` (a folder or hub id, roberta-large in the paper), BERTScore. Multiple choice: one new
    token, correct where it is the letter. ``rows`` are drawn with ``Random(100).sample`` after those with more than
    ``at_most`` tokens (prompt and answer) have been left out; None for both is the paper's choice, where it states one
    (100 reports and 100 MedQA questions; 16,384 tokens for reports), else all rows.

    Source: minghui-liu/cold-compress b2ae9f0b ``task.py``, tasks.md 5. Deviations: MedQA's multiple choice reads the
    public set with four options, since the authors' file cannot be had; free responses read a file of the user's with
    their columns; ``gsm8k_multiple_choice_derived`` is our stand-in for ``gsm8k-mc``. ``judge`` (a model's name; None =
    no judge) adds the paper's four scores from 1 to 5 and their mean, asked at the endpoint of ``OPENAI_BASE_URL`` with
    ``OPENAI_API_KEY``; without a key the task is refused, and no score is ever made up.
    """

    name: ClassVar[str] = "hashevict"
    version: ClassVar[str] = "1"

    subset: str = "gsm8k_free_response"
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    rows: int | None = None
    at_most: int | None = None  # tokens
    bert: str | None = None  # BERTScore's model
    judge: str | None = None  # an LLM that judges free responses

    def __post_init__(self) -> None:
        kind = subset(self.subset)
        if self.rows is not None:
            whole("hashevict.rows", self.rows, 1)
        if self.at_most is not None:
            whole("hashevict.at_most", self.at_most, 1)
        if self.bert is not None and kind.multiple_choice:
            raise TaskError(f"hashevict/{self.subset} is answered with a letter: set hashevict.bert=null.")
        if self.judge is not None and kind.multiple_choice:
            raise TaskError(f"hashevict/{self.subset} is answered with a letter: set hashevict.judge=null.")

    @property
    def label(self) -> str:
        """``hashevict/gov_report``."""
        return f"{self.name}/{self.subset}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """``accuracy``, or ROUGE-L, the other kinds of ROUGE, and BERTScore where a model is given."""
        if subset(self.subset).multiple_choice:
            return ("accuracy",)
        overlap = ("rougeL", *(kind for kind in ROUGE_KINDS if kind != "rougeL"))
        return (*overlap, *(BERT if self.bert else ()), *(JUDGE_METRICS if self.judge else ()))

    def revision(self) -> dict[str, str]:
        """The rows' file, the prompt, and the code of the metrics."""
        functions: list[Callable[..., object]] = [rouge_scores]
        functions += [BertScore] if self.bert else []
        functions += [Judge] if self.judge else []
        return {
            "data": revision_of(subset(self.subset).dataset, self.data),
            "prompts": files_hash(FOLDER / "hashevict.yaml"),
            "metrics": sources_hash(*functions),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """The drawn rows in the order of the draw; `TaskError` where none is short enough."""
        kind = subset(self.subset)
        if self.judge:
            refuse_without_key(self.judge)
        fitting = [self._sample(*row) for row in rows_of(self.subset, self.data)]
        limit = self.at_most or kind.longest
        if limit is not None:
            fitting = [one for one in fitting if len(tokenizer.encode(one.prompt)) + one.max_new_tokens <= limit]
        if not fitting:
            raise TaskError(f"{self.label} has no row within hashevict.at_most={limit} tokens; allow more.")
        wanted = self.rows or kind.wanted
        return [fitting[index] for index in drawn_rows(len(fitting), wanted)] if wanted else fitting

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """Equality with the letter, or overlap with the reference."""
        (reference,) = sample.references
        if subset(self.subset).multiple_choice:
            return {"accuracy": float(prediction == reference)}
        found = rouge_scores(prediction, reference)
        scores = {kind: found[kind].f for kind in ROUGE_KINDS}
        if self.bert:
            scores |= zip(BERT, BertScore(self.bert).score(prediction, reference), strict=True)
        if self.judge:
            scores |= judge_scores(self.judge, sample.prompt, prediction, reference)
        return {name: scores[name] for name in self.metrics}

    def _sample(self, index: int, place: str, row: Row) -> Sample:
        kind = subset(self.subset)
        return Sample(
            id=f"row-{index}",
            prompt=fill(kind.prompt, **kind.fields(row, index, place)).strip(),
            references=(kind.reference(row, index, place),),
            max_new_tokens=kind.max_new_tokens,
            chat=True,
            document=f"row-{index}",
        )


@dataclass(frozen=True)
class HashEvictSubset:
    """``fields`` makes a prompt's fields of a row (also given its index and place), ``reference`` its label."""

    dataset: str
    wording: str  # key of prompts/hashevict.yaml
    multiple_choice: bool
    fields: Callable[[Row, int, str], Mapping[str, object]]
    reference: Callable[[Row, int, str], str]
    wanted: int | None = None  # rows that the paper draws, where it says so
    longest: int | None = None  # tokens of prompt and answer; rows with more are left out before the draw

    @property
    def prompt(self) -> str:
        """HashEvict's wording, with ``{…}`` for the fields of a row."""
        text: str = prompts("hashevict")[self.wording]["prompt"]
        return text

    @property
    def max_new_tokens(self) -> int:
        """Tokens to generate at most."""
        tokens: int = prompts("hashevict")[self.wording]["max_new_tokens"]
        return tokens


def choice_fields(row: Row) -> dict[str, object]:
    """The prompt's fields for a row with the columns Question, A, B, C, D."""
    return {"question": row["Question"]} | {f"choice_{letter}": row[letter] for letter in LETTERS}


def with_choices(row: Row) -> str:
    """MedQA's question and its four options on lines of their own."""
    return "\n".join([row["sent1"], *(f"{letter}. {row[f'ending{n}']}" for n, letter in enumerate(LETTERS))])


def _report(subset: str) -> HashEvictSubset:
    return HashEvictSubset(
        dataset=f"longbench/{subset}",
        wording=subset,
        multiple_choice=False,
        fields=lambda row, index, place: {"context": row["context"]},
        reference=lambda row, index, place: str(row["answers"][0]),
        wanted=prompts("hashevict")[subset]["samples"],
        longest=16384,
    )


SUBSETS: dict[str, HashEvictSubset] = {
    "gsm8k_free_response": HashEvictSubset(
        dataset="gsm8k/test",
        wording="gsm8k_free_response",
        multiple_choice=False,
        fields=lambda row, index, place: {"question": row["question"]},
        reference=lambda row, index, place: str(row["answer"]),
    ),
    "gsm8k_multiple_choice": HashEvictSubset(
        dataset="gsm8k_mc/test",
        wording="gsm8k_multiple_choice",
        multiple_choice=True,
        fields=lambda row, index, place: choice_fields(row),
        reference=lambda row, index, place: checked_letter(row["Answer"], place),
    ),
    "gsm8k_multiple_choice_derived": HashEvictSubset(
        dataset="gsm8k/test",
        wording="gsm8k_multiple_choice",
        multiple_choice=True,
        fields=lambda row, index, place: choice_fields(derived_choices(row["question"], row["answer"], index, place)),
        reference=lambda row, index, place: derived_choices(row["question"], row["answer"], index, place)["Answer"],
    ),
    "medqa_free_response": HashEvictSubset(
        dataset="medqa_free/test",
        wording="medqa_free_response",
        multiple_choice=False,
        fields=lambda row, index, place: {"system": row["system"], "question": row["question"]},
        reference=lambda row, index, place: str(row["answer"]),
    ),
    "medqa_multiple_choice": HashEvictSubset(
        dataset="medqa/test",
        wording="medqa_multiple_choice",
        multiple_choice=True,
        fields=lambda row, index, place: {"question": with_choices(row)},
        reference=lambda row, index, place: letter_of(row["label"], place),
        wanted=100,
    ),
    "gov_report": _report("gov_report"),
    "multi_news": _report("multi_news"),
}


def subset(name: str) -> HashEvictSubset:
    """The subset ``name``; `TaskError` with the nearest where there is none."""
    if name not in list(SUBSETS):
        raise TaskError(f"hashevict has no subset '{name}'. {nearest(str(name), SUBSETS)}")
    return SUBSETS[name]


def rows_of(name: str, data: str) -> list[tuple[int, str, Row]]:
    """(index, place, row) of every row of the subset's data."""
    read = table(subset(name).dataset, data)
    return [(index, read.place(index), row) for index, row in enumerate(read.rows)]


def drawn_rows(rows: int, wanted: int, seed: int = HASHEVICT_SEED) -> list[int]:
    """``wanted`` of ``rows`` indices (all, where fewer are there) as HashEvict draws them: ``Random(100).sample``."""
    return random.Random(seed).sample(range(rows), min(wanted, rows))
