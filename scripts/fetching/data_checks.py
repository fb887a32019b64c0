"""Whether what was got is the data set: schema, number of rows, LongBench's own count of words (hub.md section 2)."""

from __future__ import annotations

from tasks.base import TaskError
from tasks.data import DataSet
from tasks.data.tables import Row, parsed_rows

LOOKED_AT = 5  # rows whose `length` is counted again
TOLERANCE = 0.1  # of `length`; the rule is documented, but was checked to the word on one task only


def verified(entry: DataSet, data: bytes, where: str, part: bool = False) -> tuple[Row, ...]:
    """The rows of ``data`` if they are those of ``entry``; `TaskError` by file and row otherwise.

    ``part``: whether fewer rows will do.
    """
    found = parsed_rows(data, where, entry.columns)
    if entry.rows is not None and len(found) != entry.rows and not (part and len(found) < entry.rows):
        raise TaskError(
            f"{where} holds {len(found)} rows, but {entry.name} has {entry.rows}: this is another version"
            + (" or a part of it. To have a part all the same, add --part." if len(found) < entry.rows else " of it.")
        )
    if entry.lengths_are_words:
        for number, row in enumerate(found[:LOOKED_AT], start=1):
            _is_original(row, f"{where}, row {number}")
    return found


def _is_original(row: Row, place: str) -> None:
    if "answer_prefix" in row:
        raise TaskError(
            f"{place} has a column 'answer_prefix': this is a rewritten copy whose context already holds the "
            "instruction, and the official prompt would repeat it. Use the official data.zip (--from hub)."
        )
    counted = count(row)
    if abs(counted - row["length"]) > TOLERANCE * row["length"]:
        raise TaskError(
            f"{place} says length {row['length']}, but its texts have {counted}: it was cut or rewritten. Use the "
            "official data.zip (--from hub)."
        )


def count(row: Row) -> int:
    """LongBench's `length` (tasks.md 2.1): words of input, context and answers; characters for Chinese."""
    texts = [row["input"], row["context"], *row["answers"]]
    return sum(map(len, texts)) if row["language"] == "zh" else len(" ".join(texts).split())
