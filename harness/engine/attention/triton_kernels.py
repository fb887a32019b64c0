"""Attention statistics on a GPU: each query row's log-sum-exp, then one pass over tiles; nothing of size m × N is kept.

The same functions as in `harness.engine.attention.attend`, which calls these where tensors lie on a GPU. It is imported
there only, because Triton comes with torch for GPUs alone. No atomics: a column is summed by one program, in the order
of the query rows and with the same additions as any other, so equal columns stay equal and runs repeat bit by bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from harness.engine.attention.mask import AttentionMask

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"


TILE_BYTES = 128  # of a row or column of a tile, in the keys' type: 64 × 64 logits at a time in half precision
FEW_ROWS = 16  # the smallest side that a matrix unit takes


@triton.jit
def _logits(
    query, keys, filled, valid, explicit, rows, columns, chunk, slots, fill, q_row, k_slot, f_slot, e_row, e_slot,
    scaling, softcap, width: tl.constexpr, padded: tl.constexpr, written: tl.constexpr, capped: tl.constexpr,
):  # fmt: skip
    """(rows, columns) fp32 of one query head, -inf where hidden. The pointers stand at its batch row and head."""
    depth = tl.arange(0, padded)
    is_query, exists = rows < chunk, columns < slots
    at_rows, at_columns = rows.to(tl.int64), columns.to(tl.int64)  # a long prompt's offsets go beyond 31 bits
    q = tl.load(query + at_rows[:, None] * q_row + depth[None, :], is_query[:, None] & (depth < width)[None, :], 0.0)
    k = tl.load(keys + at_columns[None, :] * k_slot + depth[:, None], exists[None, :] & (depth < width)[:, None], 0.0)
    logits = tl.dot(q, k, input_precision="ieee") * scaling
    if capped:
        logits = softcap * (1 - 2 / (tl.exp(2 * logits / softcap) + 1))
    if written:
        place = at_rows[:, None] * e_row + at_columns[None, :] * e_slot
        seen = tl.load(explicit + place, is_query[:, None] & exists[None, :], 0) != 0
    else:  # as in AttentionMask.rows
        is_text = tl.load(valid + rows, is_query, 0) != 0
        arriving = columns - fill
        arrives = (arriving >= 0) & exists
        in_use = tl.load(filled + columns * f_slot, columns < fill, 0) != 0
        arrived = tl.load(valid + arriving, arrives, 0) != 0
        causal = arrived[None, :] & (arriving[None, :] <= rows[:, None])
        itself = arriving[None, :] == rows[:, None]
        seen = (in_use[None, :] & is_text[:, None]) | (arrives[None, :] & (causal | itself))
    return tl.where(seen & exists[None, :], logits, -float("inf"))


@triton.jit
def _normalisers(
    out, query, keys, filled, valid, explicit, heads, group, chunk, slots, fill, first,
    q_one, q_head, q_row, k_one, k_head, k_slot, f_one, f_head, f_slot, e_one, e_head, e_row, e_slot, scaling, softcap,
    width: tl.constexpr, padded: tl.constexpr, written: tl.constexpr, capped: tl.constexpr,
    tall: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """log sum exp of each query row from ``first`` on: ``out`` (R, H·G, m)."""
    place = tl.program_id(1).to(tl.int64)
    one, query_head = place // (heads * group), place % (heads * group)
    head = query_head // group
    rows = first + tl.program_id(0) * tall + tl.arange(0, tall)
    query += one * q_one + query_head * q_head
    keys += one * k_one + head * k_head
    filled += one * f_one + head * f_head
    explicit += one * e_one + head * e_head
    valid += one * chunk
    largest = tl.full((tall,), -float("inf"), tl.float32)
    total = tl.zeros((tall,), tl.float32)
    reach = slots
    if not written:
        reach = tl.minimum(slots, fill + first + (tl.program_id(0) + 1) * tall)
    for start in range(0, reach, wide):
        logits = _logits(
            query, keys, filled, valid, explicit, rows, start + tl.arange(0, wide), chunk, slots, fill,
            q_row, k_slot, f_slot, e_row, e_slot, scaling, softcap, width, padded, written, capped,
        )  # fmt: skip
        higher = tl.maximum(largest, tl.max(logits, 1))
        origin = tl.where(higher == -float("inf"), 0.0, higher)  # nothing seen yet
        total = total * tl.exp(largest - origin) + tl.sum(tl.exp(logits - origin[:, None]), 1)
        largest = higher
    tl.store(out + place * chunk + rows, tl.log(total) + largest, rows < chunk)


@triton.jit
def _column_sums(
    out, lse, counted, query, keys, filled, valid, explicit, heads, group, chunk, slots, fill, first,
    c_one, c_head, c_row, c_slot,
    q_one, q_head, q_row, k_one, k_head, k_slot, f_one, f_head, f_slot, e_one, e_head, e_row, e_slot, scaling, softcap,
    width: tl.constexpr, padded: tl.constexpr, written: tl.constexpr, capped: tl.constexpr,
    selective: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """What one tile of slots receives from one query head: ``out`` (R, H·G, N)."""
    place = tl.program_id(1).to(tl.int64)
    one, query_head = place // (heads * group), place % (heads * group)
    head = query_head // group
    columns = tl.program_id(0) * wide + tl.arange(0, wide)
    query += one * q_one + query_head * q_head
    keys += one * k_one + head * k_head
    filled += one * f_one + head * f_head
    explicit += one * e_one + head * e_head
    counted += one * c_one + head * c_head
    valid += one * chunk
    sums = tl.zeros((wide,), tl.float32)
    begin = first
    if not written:  # by whole tiles, so that every column meets the same additions
        begin += tl.maximum(tl.program_id(0) * wide - fill - first, 0) // tall * tall
    for start in range(begin, chunk, tall):
        rows = start + tl.arange(0, tall)
        logits = _logits(
            query, keys, filled, valid, explicit, rows, columns, chunk, slots, fill,
            q_row, k_slot, f_slot, e_row, e_slot, scaling, softcap, width, padded, written, capped,
        )  # fmt: skip
        weights = tl.exp(logits - tl.load(lse + place * chunk + rows, rows < chunk, 0.0)[:, None])
        counts = (tl.load(valid + rows, rows < chunk, 0) != 0)[:, None]
        if selective:
            where = rows[:, None].to(tl.int64) * c_row + columns[None, :] * c_slot
            counts &= tl.load(counted + where, (rows < chunk)[:, None] & (columns < slots)[None, :], 0) != 0
        sums += tl.sum(tl.where(counts, weights, 0.0), 0)
    tl.store(out + place * slots + columns, sums, columns < slots)


@triton.jit
def _strongest(
    out, lse, query, keys, filled, valid, explicit, heads, group, chunk, slots, fill, first,
    q_one, q_head, q_row, k_one, k_head, k_slot, f_one, f_head, f_slot, e_one, e_head, e_row, e_slot, scaling, softcap,
    width: tl.constexpr, padded: tl.constexpr, written: tl.constexpr, capped: tl.constexpr,
    tall: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Largest probability over all query heads, summed over query rows, for one tile of slots: ``out`` (R, N)."""
    one = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * wide + tl.arange(0, wide)
    valid += one * chunk
    sums = tl.zeros((wide,), tl.float32)
    for start in range(first, chunk, tall):
        rows = start + tl.arange(0, tall)
        best = tl.zeros((tall, wide), tl.float32)
        for query_head in range(0, heads * group):
            head = query_head // group
            logits = _logits(
                query + one * q_one + query_head * q_head, keys + one * k_one + head * k_head,
                filled + one * f_one + head * f_head, valid, explicit + one * e_one + head * e_head,
                rows, columns, chunk, slots, fill, q_row, k_slot, f_slot, e_row, e_slot, scaling, softcap,
                width, padded, written, capped,
            )  # fmt: skip
            normaliser = tl.load(lse + (one * heads * group + query_head) * chunk + rows, rows < chunk, 0.0)
            best = tl.maximum(best, tl.exp(logits - normaliser[:, None]), propagate_nan=tl.PropagateNan.ALL)
        counts = (tl.load(valid + rows, rows < chunk, 0) != 0)[:, None]
        sums += tl.sum(tl.where(counts, best, 0.0), 0)
    tl.store(out + one * slots + columns, sums, columns < slots)


class _KernelPass:
    """One pass's tensors as the kernels take them, and its normalisers."""

    def __init__(
        self, query: Tensor, keys: Tensor, mask: AttentionMask, first: int, scaling: float, softcap: float | None
    ):
        count, heads, self.slots, width = keys.shape
        self.chunk, self.first = query.shape[2], first
        self.heads = query.shape[1]
        query, keys = _rows_contiguous(query), _rows_contiguous(keys)
        filled = mask.filled.view(torch.uint8).expand(count, heads, -1)
        self.valid = mask.valid.contiguous().view(torch.uint8)
        explicit = self.valid if mask.explicit is None else mask.explicit.view(torch.uint8)
        seen = (0, 0, 0, 0) if mask.explicit is None else explicit.expand(count, heads, -1, -1).stride()
        fill = self.slots - self.chunk if mask.explicit is None else 0
        self.tensors = (query, keys, filled, self.valid, explicit)
        self.sizes = (heads, self.heads // heads, self.chunk, self.slots, fill, first)
        self.strides = (*query.stride()[:3], *keys.stride()[:3], *filled.stride(), *seen, scaling, softcap or 1.0)
        side = TILE_BYTES // keys.element_size()
        self.constants: dict[str, Any] = {
            "width": width, "padded": max(16, triton.next_power_of_2(width)), "written": mask.explicit is not None,
            "capped": softcap is not None, "tall": FEW_ROWS if self.chunk - first <= FEW_ROWS else side, "wide": side,
        }  # fmt: skip
        self.count = count
        self.lse = torch.empty(count, self.heads, self.chunk, dtype=torch.float32, device=keys.device)
        self.columns = triton.cdiv(self.slots, side)
        tiles = triton.cdiv(self.chunk - first, self.constants["tall"])
        with torch.cuda.device_of(keys):
            _normalisers[(tiles, count * self.heads)](
                self.lse, *self.tensors, *self.sizes, *self.strides, **self.constants
            )


def _rows_contiguous(vectors: Tensor) -> Tensor:
    return vectors if vectors.stride(-1) == 1 else vectors.contiguous()


def column_sums(
    query: Tensor,
    keys: Tensor,
    mask: AttentionMask,
    first: int,
    scaling: float,
    softcap: float | None,
    counted: Tensor | None,
) -> Tensor:
    """As `harness.engine.attention.attend.column_sums`, from query row ``first`` on. Returns (R, H, G, N) fp32."""
    work = _KernelPass(query, keys, mask, first, scaling, softcap)
    out = torch.empty(work.count, work.heads, work.slots, dtype=torch.float32, device=keys.device)
    count, heads = keys.shape[:2]
    chosen = work.valid if counted is None else counted.view(torch.uint8)
    strides = (0, 0, 0, 0) if counted is None else chosen.expand(count, heads, -1, -1).stride()
    with torch.cuda.device_of(keys):
        _column_sums[(work.columns, count * work.heads)](
            out, work.lse, chosen, *work.tensors, *work.sizes, *strides, *work.strides,
            selective=counted is not None, **work.constants,
        )  # fmt: skip
    return out.view(count, heads, -1, work.slots)


def strongest_head(
    query: Tensor, keys: Tensor, mask: AttentionMask, first: int, scaling: float, softcap: float | None
) -> Tensor:
    """As `harness.engine.attention.attend.strongest_head`, from query row ``first`` on. Returns (R, N) fp32."""
    work = _KernelPass(query, keys, mask, first, scaling, softcap)
    out = torch.empty(work.count, work.slots, dtype=torch.float32, device=keys.device)
    with torch.cuda.device_of(keys):
        _strongest[(work.columns, work.count)](
            out, work.lse, *work.tensors, *work.sizes, *work.strides, **work.constants
        )
    return out
