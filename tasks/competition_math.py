"""Competition mathematics: MATH-500 and AIME, long free answers that are right where the final answer is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Sample, Task, TaskError, Tokenizer, files_hash, import_package, nearest, whole
from tasks.data import revision_of
from tasks.data.tables import Row, table
from tasks.templates import FOLDER, fill, prompts

# By data set: its table, and the name of lm-eval's prompt.
DATASETS = {
    "math_500": ("math/math_500", "lm_eval_hendrycks_math500"),
    "aime_2024": ("math/aime_2024", "lm_eval_aime"),
    "aime_2025": ("math/aime_2025", "lm_eval_aime"),
}
STYLES = ("boxed", "lm_eval")


@dataclass(frozen=True)
class CompetitionMath(Task):
    r"""Competition mathematics (MATH-500, AIME): right where the final answer is equivalent to the reference.

    The answer is found as in lm-evaluation-harness's AIME tasks: the last ``\boxed{…}``, else what stands between the
    first and the last dollar sign, else the whole text; both sides go through its ``is_equiv``. Deviation: its task
    hendrycks_math500 does not look for a box, and lets models that box their answers fail. ``style``: ``boxed`` asks to
    reason step by step and to box the answer, ``lm_eval`` is the data set's bare prompt there.

    Source: lm-evaluation-harness 0.4.13 (hendrycks_math500, aime24, aime25). Rows keep the file's order.
    """

    name: ClassVar[str] = "math"
    version: ClassVar[str] = "1"
    metrics: ClassVar[tuple[str, ...]] = ("exact_match",)

    dataset: str = "math_500"
    style: str = "boxed"
    data: str = "auto"  # where the rows lie, see `tasks.data.tables`
    chat: bool = True  # whether the prompt is a user message, for models with a chat format
    max_new_tokens: int = 4096

    def __post_init__(self) -> None:
        if self.dataset not in list(DATASETS):
            raise TaskError(f"math has no data set '{self.dataset}'. {nearest(str(self.dataset), DATASETS)}")
        if self.style not in STYLES:
            raise TaskError(f"math knows no style '{self.style}'. {nearest(str(self.style), STYLES)}")
        if self.chat not in (True, False):
            raise TaskError(f"math.chat must be true or false; got {self.chat!r}.")
        whole("math.max_new_tokens", self.max_new_tokens, 1)

    @property
    def label(self) -> str:
        """``math/aime_2024``; with lm-eval's prompt ``math/aime_2024/lm_eval``."""
        return f"{self.name}/{self.dataset}" + ("" if self.style == "boxed" else f"/{self.style}")

    @property
    def _texts(self) -> Mapping[str, Any]:
        texts: Mapping[str, Any] = prompts("math")["boxed" if self.style == "boxed" else DATASETS[self.dataset][1]]
        return texts

    def revision(self) -> dict[str, str]:
        """The rows' file and the prompts. The metric is lm-eval's, whose version every cell records."""
        return {
            "data": revision_of(DATASETS[self.dataset][0], self.data),
            "prompts": files_hash(FOLDER / "math.yaml"),
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """One per problem; raises `TaskError` where the data is missing or damaged."""
        return [
            Sample(
                id=f"row-{index}",
                prompt=fill(self._texts["prompt"], problem=_column(row, "problem")),
                references=(str(_column(row, "answer")),),
                max_new_tokens=self.max_new_tokens,
                until=tuple(self._texts["stop"]),
                chat=self.chat,
                document=f"row-{index}",
            )
            for index, row in enumerate(table(DATASETS[self.dataset][0], self.data).rows)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """1 where the final answer is the reference's, else 0. Raises `TaskError` where lm-eval is not installed."""
        rules = import_package("lm_eval.tasks.aime.utils", "lm-eval", "Scoring competition mathematics")
        (answer,) = sample.references
        return {"exact_match": float(rules.process_results({"answer": answer}, [prediction])["exact_match"])}


def _column(row: Row, name: str) -> object:
    """Of a data set's column, whose first letter is large in some (``Problem``)."""
    return row[name] if name in row else row[name.capitalize()]
