"""Retrieval of one value among many pairs of random keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks import revision
from tasks.base import Sample, Task, TaskError, Tokenizer
from tasks.checks import grid, whole
from tasks.data import revision_of, table
from tasks.metrics.string_match import string_match_all
from tasks.templates import FOLDER, fill, prompts

SIZES = (75, 140)  # pairs: what there are files for


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
    metrics: ClassVar[tuple[str, ...]] = ("contains",)

    pairs: int = 75
    gold_at: tuple[int, ...] = (0, 50, 100)  # percent
    examples: int | None = None
    query_aware: bool = False
    data: str = "auto"  # where the rows lie, see `tasks.data.table`
    chat: bool = False
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
            "prompts": revision.of_files(FOLDER / "lost_in_the_middle.yaml"),
            "metrics": revision.of_sources(string_match_all),
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
