"""Unsupported cells: those that cannot be run as requested, found before any weights are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from harness.config.cell import Cell, reason_against_budget
from harness.config.model import ModelSpec
from harness.engine.requests import Request, reason_against_model
from harness.runner.samples import Prompts
from policies.view import ModelShape

HINDSIGHT_AT_MOST = 4 * 2**30  # bytes for one row of an oracle


@dataclass(frozen=True)
class UnsupportedCell:
    """A cell that is not run, by the name of its policy (``what``), and the reason as a sentence.

    ``data_set``: the one that it lacks, where others of its group may be there.
    """

    what: str
    reason: str
    lacks_data: bool = False
    data_set: str = ""


def explain_unsupported(cells: Iterable[UnsupportedCell], opening: str) -> list[str]:
    """One line for each reason, with the policies that it applies to; one for all data sets that are not there."""
    by_reason: dict[str, dict[str, None]] = {}
    lacking: dict[str, str] = {}
    for cell in cells:
        if cell.data_set:
            lacking.setdefault(cell.data_set, cell.reason)
        else:
            by_reason.setdefault(cell.reason, {})[cell.what] = None
    lines = [f"{opening} {', '.join(names)}. {reason}" for reason, names in by_reason.items()]
    if lacking:
        first = next(iter(lacking.values()))
        lines.append(f"{opening} all on {', '.join(lacking)}. {first}" if len(lacking) > 1 else f"{opening} {first}")
    return lines


def reason_against_cell(cell: Cell, prompts: Prompts) -> str:
    """Why this cell cannot be run on its model and its task's prompts, as a sentence; empty where it can."""
    shape = _shape(cell.model)
    if reason := reason_against_model(cell.policy, shape):
        return reason
    samples = prompts.samples_of(cell)
    if cell.policy.is_dense:
        return ""
    if reason := reason_against_budget(cell.policy, min(slots for _, _, slots in samples)):
        return reason
    rows = [Request(tokens, cell.policy, slots, sample.max_new_tokens) for sample, tokens, slots in samples]
    needed = max(hindsight_bytes(cell, row, shape) for row in rows)
    if needed > HINDSIGHT_AT_MOST:
        return (
            f"Policy '{cell.policy.name}' keeps the attention of the whole dense run, {needed / 2**30:.0f} GiB for "
            f"one prompt where {HINDSIGHT_AT_MOST // 2**30} are allowed: use larger blocks or shorter prompts."
        )
    return ""


@cache
def _shape(model: ModelSpec) -> ModelShape:
    """Read once for all cells of a sweep."""
    return model.shape()


def hindsight_bytes(cell: Cell, row: Request, shape: ModelShape) -> int:
    """Bytes of attention that an oracle's row keeps of the dense run before it, sums included; 0 for other policies."""
    if not row.policy.hindsight:
        return 0
    passes = len(row.chunks(cell.prompting)) + row.max_new_tokens
    return 3 * 4 * passes * shape.layers * shape.kv_heads * row.total_tokens  # fp32; a sum and a running sum of it
