"""BUZZ's summaries: XSum and CNN/DailyMail by ROUGE, and how much summaries repeat themselves (tasks.md 6.1, 6.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from tasks.base import (
    MissingDataError,
    Sample,
    Task,
    TaskError,
    Tokenizer,
    files_hash,
    nearest,
    sources_hash,
    whole,
)
from tasks.data import revision_of
from tasks.data.tables import table
from tasks.metrics.overlap import rouge_1, rouge_2, rouge_l, self_bleu
from tasks.templates import FOLDER, fill, prompts

Read = TypeVar("Read")


@dataclass(frozen=True)
class BuzzSubset:
    """One of BUZZ's three evaluations, or one of them on another split of its data set, with the same ``wording``.

    ``article`` and ``summary`` are columns of the data set.
    """

    dataset: str
    wording: str  # key of prompts/summarization.yaml
    article: str
    summary: str
    rouge: bool


SUBSETS = {
    "xsum": BuzzSubset("xsum/validation", "buzz_xsum", "document", "summary", rouge=True),
    "xsum_test": BuzzSubset("xsum/test", "buzz_xsum", "document", "summary", rouge=True),
    "cnn_dailymail": BuzzSubset("cnn_dailymail/validation", "buzz_cnn_dailymail", "article", "highlights", rouge=True),
    "self_bleu": BuzzSubset("cnn_dailymail/validation", "buzz_self_bleu", "article", "highlights", rouge=False),
}


@dataclass(frozen=True)
class BuzzTask(Task):
    """BUZZ's summaries: XSum and CNN/DailyMail in 50 words by ROUGE, CNN/DailyMail in 150 words by Self-BLEU.

    Metrics of ``xsum`` and ``cnn_dailymail``: F of rouge-1, rouge-2 and rouge-l of the package ``rouge`` 1.0.1; the
    paper's mean ROUGE is the geometric mean of the three averages. Of ``self_bleu``: the paper's value,
    and the value without the empty sentence after the last full stop. The prompt is plain text, as in the paper,
    or a user message with ``chat`` (an instruct model without it repeats itself); the first ``rows`` rows
    are used, 40 as in the released script (the paper does not say). With ``trailing_blank`` predictions are scored
    with the blank that BUZZ's word-by-word output always ends with: after a final full stop it counts as an empty
    word, which lowers all three a little.

    Source: JunqiZhao888/buzz-llm e6f5e3e9 (main_run.py, run_bleu_eval.py), tasks.md 6.1 and 6.4. Deviation: an XSum
    row without a document is left out. ``xsum_test`` asks the same of XSum's test split, which is not BUZZ's.
    """

    name: ClassVar[str] = "buzz"
    version: ClassVar[str] = "1"

    subset: str = "xsum"
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    rows: int = 40
    trailing_blank: bool = True
    max_new_tokens: int = 1001
    chat: bool = False  # whether the prompt is a user message of the model's chat format

    def __post_init__(self) -> None:
        if self.subset not in list(SUBSETS):
            raise TaskError(f"buzz has no subset '{self.subset}'. {nearest(str(self.subset), SUBSETS)}")
        if self.trailing_blank not in (True, False):
            raise TaskError(f"buzz.trailing_blank must be true or false; got {self.trailing_blank!r}.")
        if self.chat not in (True, False):
            raise TaskError(f"buzz.chat must be true or false; got {self.chat!r}.")
        whole("buzz.rows", self.rows, 1)
        whole("buzz.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``buzz/xsum``."""
        return f"{self.name}/{self.subset}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """ROUGE where there is a reference, Self-BLEU where BUZZ compares summaries with each other."""
        return ("rouge_l", "rouge_1", "rouge_2") if SUBSETS[self.subset].rouge else ("self_bleu", "self_bleu_no_empty")

    def revision(self) -> dict[str, str]:
        """The rows' file, the prompts, and the code of the metrics."""
        return {
            "data": self._read(revision_of),
            "prompts": files_hash(FOLDER / "summarization.yaml"),
            "metrics": sources_hash(rouge_l if SUBSETS[self.subset].rouge else self_bleu),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """The first rows with an article, in the file's order."""
        kind = SUBSETS[self.subset]
        rows = [row for row in self._read(table).rows if row[kind.article].strip()][: self.rows]
        return [self._sample(kind, row, index) for index, row in enumerate(rows)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """ROUGE against the reference summary, or Self-BLEU of the prediction."""
        said = prediction + " " * self.trailing_blank
        if not SUBSETS[self.subset].rouge:
            return {"self_bleu": self_bleu(said), "self_bleu_no_empty": self_bleu(said, drop_empty=True)}
        (reference,) = sample.references
        return {
            "rouge_l": rouge_l(said, reference),
            "rouge_1": rouge_1(said, reference),
            "rouge_2": rouge_2(said, reference),
        }

    def _read(self, read: Callable[[str, str], Read]) -> Read:
        """What ``read`` finds of the rows. Where only another split of them is here, the error names its subset."""
        kind = SUBSETS[self.subset]
        try:
            return read(kind.dataset, self.data)
        except MissingDataError as error:
            for subset, other in SUBSETS.items():
                if other.wording == kind.wording and _is_here(other.dataset, self.data):
                    raise MissingDataError(
                        f"{error} What is there is {other.dataset}: 'task=buzz task.subset={subset}' asks the same of "
                        "that split, as a task of its own.",
                        error.data_set,
                    ) from None
            raise

    def _sample(self, kind: BuzzSubset, row: Mapping[str, Any], index: int) -> Sample:
        return Sample(
            id=f"row-{index}",
            prompt=fill(prompts("summarization")[kind.wording]["prompt"], **{kind.article: row[kind.article]}),
            references=(row[kind.summary],),
            max_new_tokens=self.max_new_tokens,
            chat=self.chat,
            document=str(row.get("id", index)),
        )


def _is_here(dataset: str, where: str) -> bool:
    try:
        revision_of(dataset, where)
    except TaskError:
        return False
    return True
