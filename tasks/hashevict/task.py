"""One of HashEvict's tasks: free responses scored by overlap, or one letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tasks import revision
from tasks.base import Sample, Task, TaskError, Tokenizer
from tasks.checks import whole
from tasks.data import revision_of
from tasks.hashevict.judged import SCORES, refuse_without_key, verdict
from tasks.hashevict.subsets import Row, rows_of, subset
from tasks.metrics.bert import BertScore
from tasks.metrics.google_rouge import KINDS, rouge_scores
from tasks.metrics.judge import Judge
from tasks.selection import drawn
from tasks.templates import FOLDER, fill

BERT = ("bert_precision", "bert_recall", "bert_f1")


@dataclass(frozen=True)
class HashEvict(Task):
    """HashEvict's tasks: GSM8K and MedQA as free response and multiple choice, GovReport and MultiNews at 16K.

    Every prompt is one stripped user message. Free responses: Google's ROUGE without stemmer against the whole
    reference and, with ``bert`` (a folder or hub id, roberta-large in the paper), BERTScore. Multiple choice: one new
    token, right where it is the letter. ``rows`` are drawn with ``Random(100).sample`` after those with more than
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
    data: str = "auto"  # where the rows lie, see `tasks.data.table`
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
        overlap = ("rougeL", *(kind for kind in KINDS if kind != "rougeL"))
        return (*overlap, *(BERT if self.bert else ()), *(SCORES if self.judge else ()))

    def revision(self) -> dict[str, str]:
        """The rows' file, the prompt, and the code of the metrics."""
        functions: list[Callable[..., object]] = [rouge_scores]
        functions += [BertScore] if self.bert else []
        functions += [Judge] if self.judge else []
        return {
            "data": revision_of(subset(self.subset).dataset, self.data),
            "prompts": revision.of_files(FOLDER / "hashevict.yaml"),
            "metrics": revision.of_sources(*functions),
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
        return [fitting[index] for index in drawn(len(fitting), wanted)] if wanted else fitting

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """Equality with the letter, or overlap with the reference."""
        (reference,) = sample.references
        if subset(self.subset).multiple_choice:
            return {"accuracy": float(prediction == reference)}
        found = rouge_scores(prediction, reference)
        scores = {kind: found[kind].f for kind in KINDS}
        if self.bert:
            scores |= zip(BERT, BertScore(self.bert).score(prediction, reference), strict=True)
        if self.judge:
            scores |= verdict(self.judge, sample.prompt, prediction, reference)
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
