"""Attention over slots: the output for the model, and the attention statistics that policies read."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from math import frexp
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.attention.mask import AttentionMask
from policies.view import AttentionRows

if TYPE_CHECKING:  # a sweep is planned without transformers' models
    from transformers import PreTrainedModel

ROWS_PER_TILE = 64  # query rows of statistics whose probabilities are in memory at one time
ATTENDED_PER_TILE = 128  # the same where attention itself is computed in tiles
ROWS_WORTH_TILES = 64  # query rows of a KV head from which products in tiles are faster than the fused kernel
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
    """Softmax attention, by a fused kernel unless logits are capped or products in tiles are faster.

    ``query`` (R, H·G, m, D), ``keys`` and ``values`` (R, H, N, D). Returns (R, m, H·G, D). The query group is folded
    into the query rows, so that K and V are never repeated; a whole prompt at once needs no mask and no folding.
    """
    rows, query_heads, chunk, width = query.shape
    heads = keys.shape[1]
    group = query_heads // heads
    if _takes_tiles(query, keys):
        return _in_tiles(query, keys, values, mask, scaling, softcap)
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


def _in_tiles(
    query: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask, scaling: float, softcap: float | None,
    sums: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """As `attend`, with probabilities in fp32 that are rounded to the values' type where they are multiplied with them.

    torch's fused kernel for processors multiplies small pieces, at a sixth of the rate of oneDNN's products of tiles.
    ``sums`` (R, H, G, N): where `column_sums` of all rows are added, if given.
    """
    rows, query_heads, chunk, _ = query.shape
    heads = keys.shape[1]
    output = query.new_empty(rows, chunk, heads, query_heads // heads, values.shape[-1])
    added = None if mask.plain else mask.added_to_logits(1, query.dtype)
    tiles = _probabilities(query, keys, mask, "all", scaling, softcap, ATTENDED_PER_TILE, added)
    for some, tile, weights in tiles:
        if sums is not None:
            _add_columns(sums, weights, mask, some, tile)
        seen = values[some, :, : weights.shape[-1]].flatten(0, 1)
        made = weights.to(values.dtype).flatten(2, 3).flatten(0, 1) @ seen
        output[some, tile].permute(0, 2, 3, 1, 4).copy_(made.view(*weights.shape[:4], -1))
    return output.flatten(2, 3)


def sums_come_with(query: Tensor, keys: Tensor) -> bool:
    """Whether `attend_with_sums` costs what `attend` does: on a processor, of one token and where it takes tiles."""
    return query.device.type == "cpu" if query.shape[2] == 1 else _takes_tiles(query, keys)


def _takes_tiles(query: Tensor, keys: Tensor) -> bool:
    rows_of_a_head = query.shape[1] // keys.shape[1] * query.shape[2]
    return rows_of_a_head >= ROWS_WORTH_TILES and multiplies_bfloat16(query, keys)


def attend_with_sums(
    query: Tensor, keys: Tensor, values: Tensor, mask: AttentionMask, scaling: float, softcap: float | None = None
) -> tuple[Tensor, Tensor]:
    """As `attend`, and the `column_sums` of all its rows, so that they need not read the keys again."""
    rows, query_heads, chunk, width = query.shape
    heads = keys.shape[1]
    if chunk > 1:
        sums = keys.new_zeros(rows, heads, query_heads // heads, keys.shape[2], dtype=torch.float32)
        return _in_tiles(query, keys, values, mask, scaling, softcap, sums), sums
    grouped = query.view(rows, heads, query_heads // heads, width).float()
    logits = capped(_of_each_head(grouped, keys.float().mT) * scaling, softcap)
    mask.hide(logits.unsqueeze(3), slice(None), slice(0, 1), mask.added_to_logits(1, logits.dtype))
    weights = logits.softmax(-1)
    output = _of_each_head(weights, values.float()).to(query.dtype)
    return output.reshape(rows, 1, query_heads, -1), weights if mask.plain else weights * mask.valid[:, None, None]


def _of_each_head(left: Tensor, right: Tensor) -> Tensor:
    """The product (R, H, G, n) of ``left`` (R, H, G, m) and ``right`` (R, H, m, n), keys or values in fp32.

    One head after another where the layers lie between the rows of a cache: torch would copy what it multiplies in one
    go over rows and heads.
    """
    if len(right) == 1 or right.is_contiguous() or right.mT.is_contiguous():
        return left @ right
    return torch.stack([left[:, head] @ right[:, head] for head in range(right.shape[1])], 1)


class _Bfloat16Products:
    """Within it fp32 tensors are multiplied as bfloat16 and added in fp32: exact for numbers that bfloat16 holds."""

    settings: Any = getattr(torch.backends.mkldnn, "matmul", None)  # older versions of torch have none

    def __enter__(self) -> None:
        self.before = self.settings.fp32_precision
        self.settings.fp32_precision = "bf16"

    def __exit__(self, *_: object) -> None:
        self.settings.fp32_precision = self.before


_BFLOAT16_PRODUCTS = _Bfloat16Products()


def multiplies_bfloat16(query: Tensor, keys: Tensor) -> bool:
    """Whether both are bfloat16, on a processor with instructions for products of it."""
    return query.dtype == keys.dtype == torch.bfloat16 and query.device.type == "cpu" and _has_bfloat16_products()


@cache
def _has_bfloat16_products() -> bool:
    """AVX-512 alone is not enough: it makes products of bfloat16 from those of fp32."""
    if platform.machine().lower() not in ("x86_64", "amd64") or _BFLOAT16_PRODUCTS.settings is None:
        return False
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


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
    rows_per_tile: int = ROWS_PER_TILE,
    added: Tensor | None = None,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """The probabilities of the chunk's last query rows, tile by tile: rows r, query rows t, and (r, H, G, t, n) fp32.

    n: slots up to the last one that the tile sees. ``added``: the mask as `AttentionMask.hide` takes it.
    """
    count, heads, slots, _ = keys.shape
    chunk = query.shape[2]
    first = _first_of(last_rows, chunk)
    grouped = _grouped(query, heads)
    wide = min(rows_per_tile, chunk - first)
    at_once = max(1, NUMBERS_PER_TILE // (query.shape[1] * wide * slots)) if keys.device.type == "cpu" else count
    products = _BFLOAT16_PRODUCTS if multiplies_bfloat16(query, keys) else nullcontext()
    before, after = (scaling, 1.0) if frexp(scaling)[0] == 0.5 else (1.0, scaling)  # a power of two rounds nothing
    for begin in range(0, count, at_once):
        rows = slice(begin, min(begin + at_once, count))
        transposed = keys[rows].float().flatten(0, 1).mT  # once, in case it takes a copy
        for start in range(first, chunk, rows_per_tile):
            tile = slice(start, min(start + rows_per_tile, chunk))
            near = mask.reach(tile)
            queries = grouped[rows, :, :, tile].float() * before
            with products:
                logits = queries.flatten(2, 3).flatten(0, 1) @ transposed[..., :near]
            logits = capped(logits if after == 1.0 else logits.mul_(after), softcap)
            logits = logits.view(*queries.shape[:4], near)
            mask.hide(logits, rows, tile, added)
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
        if counted is not None:
            weights = weights * counted[rows, :, None, tile, : weights.shape[-1]]
        _add_columns(total, weights, mask, rows, tile)
    return total


def _add_columns(total: Tensor, weights: Tensor, mask: AttentionMask, rows: slice, tile: slice) -> None:
    """Add what a tile's query rows give to each slot. The ``weights`` of padding become 0."""
    if not mask.plain:
        weights.mul_(mask.valid[rows, None, None, tile, None])
    # A sum and not a matrix product: it adds every column in the same order, so that equal columns stay equal.
    total[rows, ..., : weights.shape[-1]] += weights.sum(3)


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
