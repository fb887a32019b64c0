"""Attention over slots: the output for the model, and the attention statistics that policies read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.attention.mask import AttentionMask
from policies.view import AttentionRows

if TYPE_CHECKING:  # a sweep is planned without transformers' models
    from transformers import PreTrainedModel

ROWS_PER_TILE = 64  # at most so many query rows have their probabilities in memory at one time
NUMBERS_PER_TILE = 2**19  # on a CPU: a tile of so many fp32 numbers stays in the processor's cache


@contextmanager
def attending_by(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Within it the model attends through the function registered as ``name``; afterwards it is as it was."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _grouped(query: Tensor, heads: int) -> Tensor:
    """(R, H·G, m, D) to (R, H, G, m, D): consecutive query heads share a KV head."""
    rows, query_heads, chunk, width = query.shape
    return query.view(rows, heads, query_heads // heads, chunk, width)


def capped(logits: Tensor, softcap: float | None) -> Tensor:
    """Gemma 2's tanh cap; unchanged for all other models."""
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask, scaling: float, softcap: float | None = None
) -> Tensor:
    """Softmax attention, by a fused kernel unless logits are capped.

    ``query`` (R, H·G, m, D), ``keys`` and ``values`` (R, H, N, D). Returns (R, m, H·G, D). The query group is folded
    into the query rows, so that K and V are never repeated; a whole prompt at once needs no mask and no folding.
    """
    rows, query_heads, chunk, width = query.shape
    heads = keys.shape[1]
    group = query_heads // heads
    if mask.plain and mask.slots == chunk > 1 and softcap is None:
        whole = F.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scaling, enable_gqa=True)
        return whole.transpose(1, 2)
    folded = _grouped(query, heads).reshape(rows, heads, group * chunk, width)
    if softcap is None:
        added = mask.added_to_logits(group, query.dtype)
        output = F.scaled_dot_product_attention(folded, keys, values, attn_mask=added, scale=scaling)
    else:
        logits = capped(folded.float() @ keys.float().transpose(-1, -2) * scaling, softcap)
        hidden = ~mask.rows(slice(None)).repeat(1, 1, group, 1)
        weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
        output = weights.to(values.dtype) @ values
    return output.reshape(rows, heads, group, chunk, -1).permute(0, 3, 1, 2, 4).reshape(rows, chunk, query_heads, -1)


def attend_with_weights(
    query: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask, scaling: float, softcap: float | None = None
) -> tuple[Tensor, Tensor]:
    """As `attend` for a single token, and its probabilities (R, H, G, N) fp32, zero where the token is padding.

    On a CPU that costs what the fused kernel does, and the statistics of the pass need not read the keys again.
    """
    rows, query_heads, _, width = query.shape
    heads = keys.shape[1]
    grouped = query.view(rows, heads, query_heads // heads, width)
    logits = capped(_of_each_head(grouped, keys.mT) * scaling, softcap)
    mask.hide(logits.unsqueeze(3), slice(None), slice(0, 1))
    weights = logits.softmax(-1)
    output = _of_each_head(weights, values)
    return output.reshape(rows, 1, query_heads, -1), weights if mask.plain else weights * mask.valid[:, None, None]


def _of_each_head(left: Tensor, right: Tensor) -> Tensor:
    """The product (R, H, G, n) of ``left`` (R, H, G, m) and ``right`` (R, H, m, n), keys or values.

    One head after another: the layers lie between the rows of a cache, and torch would copy what it multiplies in one
    go over rows and heads.
    """
    if len(right) == 1:
        return left @ right
    return torch.stack([left[:, head] @ right[:, head] for head in range(right.shape[1])], 1)


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether `harness.engine.attention.triton_kernels` computes the statistics of tensors that lie there."""
    return device.type == "cuda" and find_spec("triton") is not None


def _first_of(last_rows: AttentionRows, chunk: int) -> int:
    return 0 if last_rows == "all" else max(0, chunk - last_rows)


def _probabilities(
    query: Tensor,
    keys: Tensor,
    mask: AttentionMask,
    last_rows: AttentionRows,
    scaling: float,
    softcap: float | None,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """The probabilities of the chunk's last query rows, tile by tile: rows r, query rows t, and (r, H, G, t, n) fp32.

    n: slots up to the last one that the tile sees.
    """
    count, heads, slots, _ = keys.shape
    chunk = query.shape[2]
    first = _first_of(last_rows, chunk)
    grouped = _grouped(query, heads)
    wide = min(ROWS_PER_TILE, chunk - first)
    at_once = max(1, NUMBERS_PER_TILE // (query.shape[1] * wide * slots)) if keys.device.type == "cpu" else count
    for begin in range(0, count, at_once):
        rows = slice(begin, min(begin + at_once, count))
        transposed = keys[rows].float().flatten(0, 1).mT  # once, in case it takes a copy
        for start in range(first, chunk, ROWS_PER_TILE):
            tile = slice(start, min(start + ROWS_PER_TILE, chunk))
            near = mask.reach(tile)
            queries = grouped[rows, :, :, tile].float()
            products = queries.flatten(2, 3).flatten(0, 1) @ transposed[..., :near]
            logits = capped(products.mul_(scaling), softcap)
            logits = logits.view(*queries.shape[:4], near)
            mask.hide(logits, rows, tile)
            yield rows, tile, logits.softmax(-1)


def column_sums(
    query: Tensor,
    keys: Tensor,
    mask: AttentionMask,
    last_rows: AttentionRows,
    scaling: float,
    softcap: float | None = None,
    counted: Tensor | None = None,
) -> Tensor:
    """Attention that each slot received from the chunk's last rows: summed over rows, per query head.

    Shapes as in `attend`; query rows that are padding do not count (chunks are right-aligned, so the last rows are
    the newest tokens); ``counted`` (R, H, m, N) bool restricts what is summed. Returns (R, H, G, N) fp32; arithmetic
    is fp32 whatever the model's dtype (policies.md 1.7). Probabilities live for one tile only.
    """
    if has_kernels(keys.device):
        from harness.engine.attention import triton_kernels

        first = _first_of(last_rows, query.shape[2])
        return triton_kernels.column_sums(query, keys, mask, first, scaling, softcap, counted)
    count, heads, slots, _ = keys.shape
    total = keys.new_zeros(count, heads, query.shape[1] // heads, slots, dtype=torch.float32)
    for rows, tile, weights in _probabilities(query, keys, mask, last_rows, scaling, softcap):
        if not mask.plain:
            weights = weights * mask.valid[rows, None, None, tile, None]
        if counted is not None:
            weights = weights * counted[rows, :, None, tile, : weights.shape[-1]]
        # A sum and not a matrix product: it adds every column in the same order, so that equal columns stay equal.
        total[rows, ..., : weights.shape[-1]] += weights.sum(3)
    return total


def probabilities(
    query: Tensor, keys: Tensor, mask: AttentionMask, scaling: float, softcap: float | None = None
) -> Tensor:
    """What each query row gives to each slot: (R, H, G, m, N) fp32, zero for rows that are padding.

    For a few rows at a time: unlike sums, all of it is in memory. Shapes as in `attend`.
    """
    count, heads, slots, _ = keys.shape
    query_heads, chunk = query.shape[1:3]
    found = keys.new_zeros(count, heads, query_heads // heads, chunk, slots, dtype=torch.float32)
    for rows, tile, weights in _probabilities(query, keys, mask, "all", scaling, softcap):
        found[rows, :, :, tile, : weights.shape[-1]] = weights
    return found if mask.plain else found.mul_(mask.valid[:, None, None, :, None])


def strongest_head(
    query: Tensor,
    keys: Tensor,
    mask: AttentionMask,
    last_rows: int,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """Largest probability over all query heads, summed over the last rows: (R, N) fp32.

    Slot j must hold the same token in every head, as it does while a prompt is being read at once.
    """
    if has_kernels(keys.device):
        from harness.engine.attention import triton_kernels

        first = _first_of(last_rows, query.shape[2])
        return triton_kernels.strongest_head(query, keys, mask, first, scaling, softcap)
    total = keys.new_zeros(keys.shape[0], keys.shape[2], dtype=torch.float32)
    for rows, tile, weights in _probabilities(query, keys, mask, last_rows, scaling, softcap):
        total[rows, : weights.shape[-1]] += (weights.amax((1, 2)) * mask.valid[rows, tile, None]).sum(1)
    return total
