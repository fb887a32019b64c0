"""A cohort of rows that were in others: of one without those that are finished, or of two that go on together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from harness.engine.batch.batch import Batch, Future
from harness.engine.cache.slot_layer import MovedGroup, MovedRows
from harness.engine.decode.oracle import FutureOfParts
from harness.engine.requests.request import neighbours_by_policy

Part = tuple[Batch, Sequence[int]]  # and the rows of it that go on, ascending


def merge_key(cohort: Batch) -> Hashable:
    """Equal for two cohorts whose rows may go on together: attended alike, over about as many slots."""
    size = (max(row.capacity for row in cohort.rows) - 1).bit_length()
    return cohort.uniform, size, cohort.prompting, cohort.rope is None, cohort.layers


def merge_batches(*parts: Part) -> tuple[Batch, list[int]]:
    """These rows, of cohorts of one `kind` and after their prompts, as one that goes on where each of them stands.

    Equal policies become neighbours, so rows may change places: the second result says, for each row of the new cohort,
    which one it was, counted over all parts one after the other.
    """
    first = parts[0][0]
    came = [(part, row) for part, (_, rows) in enumerate(parts) for row in rows]
    order = neighbours_by_policy([parts[part][0].rows[row] for part, row in came])
    came = [came[number] for number in order]
    members = [parts[part][0].rows[row] for part, row in came]
    chunks = [parts[part][0].chunks[row] for part, row in came]
    whole = Batch(members, first.prompting, first.layers, first.device, chunks, ragged=not first.uniform)
    whole.counts = [parts[part][0].counts[row] for part, row in came]
    whole.lengths = [parts[part][0].lengths[row] for part, row in came]
    whole.passes = max(cohort.passes for cohort, _ in parts)
    whole.asks_attention = any(cohort.asks_attention for cohort, _ in parts)
    whole.phase, whole.watchers = first.phase, first.watchers
    ropes = [cohort.rope for cohort, _ in parts if cohort.rope is not None]
    whole.rope = max(ropes, key=lambda rope: len(rope.cos), default=None)
    whole.future = _future([(parts[part][0].future, row) for part, row in came])
    moves = [_move(cohort, number, whole, came) for number, (cohort, _) in enumerate(parts)]
    for (cohort, _), (old, new, _) in zip(parts, moves, strict=True):
        known = min(whole.fed.shape[1], cohort.fed.shape[1])
        whole.fed[new, :known] = cohort.fed[old, :known]
    for number, layer in enumerate(whole.cache.layers):
        legacies = [
            MovedRows(cohort.cache.layers[number], *move) for (cohort, _), move in zip(parts, moves, strict=True)
        ]
        layer.take_over(legacies, len(came), whole.fill)
    whole.tally.carry_on([cohort.tally for cohort, _ in parts], came)
    return whole, order


def _future(each: Sequence[tuple[Future | None, int]]) -> Future | None:
    known = [(future, row) for future, row in each if future is not None]
    if len(known) < len(each):
        return None
    one, _ = known[0]
    together = all(future is one for future, _ in known)
    return one.for_rows([row for _, row in known]) if together else FutureOfParts(known)


def _move(
    cohort: Batch, part: int, whole: Batch, came: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor, list[MovedGroup]]:
    """The rows of one part, where they are in the new cohort, and which groups go on with them."""
    places = [place for place, (number, _) in enumerate(came) if number == part]
    heirs = []
    for group in whole.groups:
        mine = [place for place in places if group.rows.start <= place < group.rows.stop]
        if mine:
            rows = [came[place][1] for place in mine]
            was = next(each for each in cohort.groups if each.rows.start <= rows[0] < each.rows.stop)
            local = torch.tensor(rows, device=cohort.device) - was.rows.start
            here = torch.tensor(mine, device=cohort.device) - group.rows.start
            heirs.append(MovedGroup(group.number, group.rows, was.number, local, here))
    old = torch.tensor([came[place][1] for place in places], device=cohort.device)
    return old, torch.tensor(places, device=cohort.device), heirs
