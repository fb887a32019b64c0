"""Merge, compact and fork batches: rows of one or several batches, after their prompts, as one new batch.

One batch without its finished rows is a compaction; two batches that go on together are a merge; a batch whose rows go
on several times, each with a question or an answer of its own, is a fork. Each row keeps its slots, its policy's state
and its counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from harness.engine.batch.batch import Batch
from harness.engine.cache.slot_layer import MovedGroup, MovedRows
from harness.engine.decode.look_ahead import Future, FutureOfParts
from harness.engine.requests import Request, neighbours_by_policy

Part = tuple[Batch, Sequence[int]]  # a batch, and the rows of it that go on, ascending; a fork repeats some


def merge_key(batch: Batch) -> Hashable:
    """Equal for two batches whose rows may be merged: with attention of one kind, and dense rows with dense ones: a
    batch in which some rows grow has another shape in every pass."""
    grows = any(row.policy.is_dense for row in batch.rows)
    return batch.uniform, grows, batch.prompting, batch.rope is None, batch.layers


def merge_batches(*parts: Part) -> tuple[Batch, list[int]]:
    """These rows, of batches of one `merge_key` and after their prompts, as one batch that continues each of them.

    Equal policies become neighbours, so rows may change their order: the second result says, for each row of the new
    batch, which one it was, counted over all parts one after the other. The parts are released.
    """
    return _merged(parts, [batch.rows[row] for batch, rows in parts for row in rows])


def fork_batch(batch: Batch, readers: Sequence[Sequence[Request]]) -> tuple[Batch, list[int]]:
    """A batch after its prompts, in which each row goes on once for each of its ``readers``.

    Readers have their row's prompt, policy and budget, and no more tokens than it; what follows the prompt is theirs.
    The second result is as in `merge_batches`, counted over the readers one row after the other. ``batch`` is released.
    """
    rows = [row for row, own in enumerate(readers) for _ in own]
    return _merged([(batch, rows)], [reader for own in readers for reader in own])


def _merged(parts: Sequence[Part], members: Sequence[Request]) -> tuple[Batch, list[int]]:
    first = parts[0][0]
    origins = [(part, row) for part, (_, rows) in enumerate(parts) for row in rows]
    order = neighbours_by_policy(members)
    origins, members = [origins[number] for number in order], [members[number] for number in order]
    chunks = [parts[part][0].chunks[row] for part, row in origins]
    merged = Batch(members, first.prompting, first.layers, first.device, chunks, ragged=not first.uniform)
    merged.counts = [parts[part][0].counts[row] for part, row in origins]
    merged.lengths = [parts[part][0].lengths[row] for part, row in origins]
    merged.passes = max(batch.passes for batch, _ in parts)
    merged.asked_rows = parts[0][0].asked_rows.union(*(batch.asked_rows for batch, _ in parts))
    merged.phase, merged.watchers = first.phase, first.watchers
    ropes = [batch.rope for batch, _ in parts if batch.rope is not None]
    merged.rope = max(ropes, key=lambda rope: len(rope.cos), default=None)
    rotations = [batch.rotation for batch, _ in parts if batch.rotation is not None]
    merged.rotation = max(rotations, key=lambda table: len(table.cos), default=None)
    merged.output_heads = next((batch.output_heads for batch, _ in parts if batch.output_heads is not None), None)
    merged.future = _future([(parts[part][0].future, row) for part, row in origins])
    moves = [_move(batch, number, merged, origins) for number, (batch, _) in enumerate(parts)]
    for (batch, _), (old, new, *_) in zip(parts, moves, strict=True):
        known = min(merged.fed.shape[1], batch.fed.shape[1])
        merged.fed[new, :known] = batch.fed[old, :known]
    for number, layer in enumerate(merged.cache.layers):
        moved = [MovedRows(batch.cache.layers[number], *move) for (batch, _), move in zip(parts, moves, strict=True)]
        layer.merge_from(moved, len(origins), merged.fill)
    merged.statistics.merge_from([batch.statistics for batch, _ in parts], origins)
    for batch, _ in parts:
        batch.release()
    return merged, order


def _future(each: Sequence[tuple[Future | None, int]]) -> Future | None:
    known = [(future, row) for future, row in each if future is not None]
    if len(known) < len(each):
        return None
    one, _ = known[0]
    is_shared = all(future is one for future, _ in known)
    return one.for_rows([row for _, row in known]) if is_shared else FutureOfParts(known)


def _move(
    batch: Batch, part: int, merged: Batch, origins: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor, list[MovedGroup], list[tuple[slice, slice]]]:
    """Of one part: its rows (r,), the same rows in the merged batch (r,), the groups that move with them, and the rows
    once more as slices."""
    new_rows = [row for row, (number, _) in enumerate(origins) if number == part]
    groups = []
    for group in merged.groups:
        mine = [row for row in new_rows if group.rows.start <= row < group.rows.stop]
        if mine:
            rows = [origins[row][1] for row in mine]
            old_group = next(each for each in batch.groups if each.rows.start <= rows[0] < each.rows.stop)
            old_rows = torch.tensor(rows, device=batch.device) - old_group.rows.start
            rows_in_group = torch.tensor(mine, device=batch.device) - group.rows.start
            groups.append(MovedGroup(group.number, group.rows, old_group.number, old_rows, rows_in_group))
    old_rows = [origins[row][1] for row in new_rows]
    old, new = (torch.tensor(rows, device=batch.device) for rows in (old_rows, new_rows))
    return old, new, groups, _runs(old_rows, new_rows)


def _runs(old: Sequence[int], new: Sequence[int]) -> list[tuple[slice, slice]]:
    """Pairs of rows as pairs of slices, as long as both ascend by one. A copy of slices reads and writes once; one by
    index makes a copy in between."""
    runs: list[tuple[slice, slice]] = []
    for here, there in zip(old, new, strict=True):
        if runs and (runs[-1][0].stop, runs[-1][1].stop) == (here, there):
            before, after = runs.pop()
            runs.append((slice(before.start, here + 1), slice(after.start, there + 1)))
        else:
            runs.append((slice(here, here + 1), slice(there, there + 1)))
    return runs
