"""One layer in one forward pass: queries, keys and mask, and what a policy is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import log

import torch
from torch import Tensor

from harness.engine.attention.attend import attend
from harness.engine.attention.attention_statistics import AttentionStatistics, Computed
from harness.engine.attention.mask import AttentionMask
from harness.engine.attention.model_parts import CacheRope
from harness.engine.batch.batch import Batch
from harness.engine.batch.group import Group
from harness.engine.cache.ragged_layer import RaggedLayer
from harness.engine.cache.slot_layer import SlotLayer
from policies import CacheView
from policies.selection import ranks


@dataclass(frozen=True)
class LayerPass:
    """The tensors between the model's projections and the eviction in one layer. Shapes as in `attend`."""

    batch: Batch
    layer: SlotLayer | RaggedLayer
    index: int  # of the layer
    query: Tensor  # (R, H·G, m, D)
    keys: Tensor  # (R, H, fill + m, D), slots and chunk
    values: Tensor
    positions: Tensor  # (R, H, fill + m) int32, -1 = empty
    mask: AttentionMask
    scaling: float
    softcap: float | None
    computed: dict[Computed, Tensor] = field(default_factory=dict)  # statistics computed so far

    @staticmethod
    def of(
        batch: Batch, index: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None
    ) -> LayerPass:
        """From what transformers hands to an attention function."""
        layer = batch.cache.layers[index]
        chunk = batch.feed.positions.unsqueeze(1).expand(-1, keys.shape[1], -1)
        slots = layer.slot_positions
        positions = torch.cat([slots, chunk], -1)
        mask = batch.mask if batch.uniform else batch.feed.mask(slots >= 0)
        if batch.rope is not None:
            query, keys = _at_cache_positions(batch.rope, query, keys, positions)
        for group in batch.groups:
            if group.policy.logit_scale == "log512" and not group.state_only:
                attended = (positions[group.rows, 0] >= 0).sum(-1)[:, None, None, None]
                query = query.index_copy(
                    0, _indices(group, query), query[group.rows] * (attended.log() / log(512)).to(query.dtype)
                )
        return LayerPass(batch, layer, index, query, keys, values, positions, mask, scaling, softcap)

    def attend(self) -> Tensor:
        """The attention output for the model, (R, m, H·G, D)."""
        return attend(self.query, self.keys, self.values, self.mask, self.scaling, self.softcap)

    def hiding(self, hidden: Tensor) -> LayerPass:
        """The same pass with these slots hidden as well: ``hidden`` (R, H, 1 or m, fill + m) bool."""
        return replace(self, mask=self.mask.hiding(hidden), computed={})

    def seen(self) -> Tensor:
        """(R, H) int64: slots that the chunk's newest token attends to."""
        return self.mask.newest.expand(*self.keys.shape[:2], -1).sum(-1)

    def attention_of(self, rows: slice) -> AttentionStatistics:
        """The statistics of these rows."""
        return AttentionStatistics(
            fetch=partial(self._queries, (rows,)),
            keys=self.keys[rows],
            positions=self.positions[rows],
            mask=self.mask.of(rows),
            query_positions=self.batch.feed.positions[rows],
            scaling=self.scaling,
            softcap=self.softcap,
            computed=self.computed,
            rows_of_pass=(rows.start, rows.stop),
        )

    def _queries(self, part: tuple[slice | Tensor, ...]) -> Tensor:
        return self.query[part]

    def view(self, group: Group, state: dict[str, Tensor]) -> CacheView:
        """What this group's policy is shown after attention: slots and chunk, with this ``state``."""
        rows = group.rows
        return self.batch.view(
            group,
            self.index,
            keys=self.keys[rows],
            values=self.values[rows],
            positions=self.positions[rows],
            attention=self.attention_of(rows),
            state=state,
            arriving=self.layer.chunk_keys[rows],
        )

    def prompt_view(self, group: Group, rows: Sequence[int], text: slice) -> CacheView:
        """Whole prompts without padding, before attention, of rows of the group whose prompts are equally long.

        The cache is still empty.
        """
        within = [row - group.rows.start for row in rows]
        index = torch.tensor(rows, device=self.keys.device)
        whole = self.view(group, {})
        keys, positions = self.keys[index, :, text], self.positions[index, :, text]
        query_positions = self.batch.feed.positions[index, text]
        return replace(
            whole,
            keys=keys,
            values=self.values[index, :, text],
            positions=positions,
            attention=AttentionStatistics(
                fetch=partial(self._queries, (index, slice(None), text)),
                keys=keys,
                positions=positions,
                mask=AttentionMask(query_positions >= 0, positions[:, :1, :0] >= 0),
                query_positions=query_positions,
                scaling=self.scaling,
                softcap=self.softcap,
            ),
            arriving=self.layer.chunk_keys[index, :, text],
            counts=tuple(whole.counts[row] for row in within),
            lengths=tuple(whole.lengths[row] for row in within),
            budgets=tuple(whole.budgets[row] for row in within),
            prompt_lengths=tuple(whole.prompt_lengths[row] for row in within),
            token_ids=whole.token_ids[within],
            kept_before=whole.kept_before[within],
            seen_now=None,
        )

    def view_before(self, group: Group, state: dict[str, Tensor]) -> CacheView:
        """What it is shown before attention: the old slots alone, under a budget that leaves room for the new token."""
        fill = self.layer.fill
        widths = self.batch.feed.widths[group.rows]
        whole = self.view(group, state)
        return replace(
            whole,
            keys=whole.keys[:, :, :fill],
            values=whole.values[:, :, :fill],
            positions=whole.positions[..., :fill],
            counts=tuple(count - width for count, width in zip(whole.counts, widths, strict=True)),
            lengths=tuple(length - width for length, width in zip(whole.lengths, widths, strict=True)),
            seen_now=None,
            budgets=tuple(budget - width for budget, width in zip(whole.budgets, widths, strict=True)),
        )


def _indices(group: Group, like: Tensor) -> Tensor:
    return torch.arange(group.rows.start, group.rows.stop, device=like.device)


def _at_cache_positions(rope: CacheRope, query: Tensor, keys: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Unrotated queries and keys, rotated by the rank of their tokens inside the cache."""
    index = ranks(positions)
    query_index = index[..., -query.shape[2] :].repeat_interleave(query.shape[1] // keys.shape[1], dim=1)
    return rope.rotate(query, query_index), rope.rotate(keys, index)
