"""One layer in one forward pass: what is attended, who may see what, and what a policy is shown of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from math import log

import torch
from torch import Tensor

from harness.engine.attention.attend import attend
from harness.engine.attention.attention_statistics import AttentionStatistics
from harness.engine.attention.cache_rope import CacheRope, ranks
from harness.engine.attention.mask import AttentionMask
from harness.engine.batch.batch import Batch
from harness.engine.batch.group import Group
from harness.engine.cache.ragged_layer import RaggedLayer
from harness.engine.cache.slot_layer import SlotLayer
from policies import CacheView


@dataclass(frozen=True)
class LayerPass:
    """Everything between the model's projections and the settled cache. Shapes as in `attend`."""

    cohort: Batch
    layer: SlotLayer | RaggedLayer
    index: int  # of the layer
    query: Tensor  # (R, H·G, m, D)
    keys: Tensor  # (R, H, fill + m, D), slots and chunk
    values: Tensor
    positions: Tensor  # (R, H, fill + m) int32, -1 = empty
    sight: AttentionMask
    scaling: float
    softcap: float | None
    known: dict[Hashable, Tensor] = field(default_factory=dict)  # statistics computed so far

    @staticmethod
    def of(
        cohort: Batch, index: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None
    ) -> LayerPass:
        """From what transformers hands to an attention function."""
        layer = cohort.cache.layers[index]
        chunk = cohort.feed.positions.unsqueeze(1).expand(-1, keys.shape[1], -1)
        positions = torch.cat([layer.slot_positions, chunk], -1)
        sight = cohort.sight if cohort.uniform else cohort.feed.sight(layer.slot_positions >= 0)
        if cohort.rope is not None:
            query, keys = _at_cache_positions(cohort.rope, query, keys, positions)
        for group in cohort.groups:
            if group.policy.logit_scale == "log512" and not group.only_follows:
                attended = (positions[group.rows, 0] >= 0).sum(-1)[:, None, None, None]
                query = query.index_copy(
                    0, _indices(group, query), query[group.rows] * (attended.log() / log(512)).to(query.dtype)
                )
        return LayerPass(cohort, layer, index, query, keys, values, positions, sight, scaling, softcap)

    def attend(self) -> Tensor:
        """The attention output for the model, (R, m, H·G, D)."""
        return attend(self.query, self.keys, self.values, self.sight, self.scaling, self.softcap)

    def hiding(self, hidden: Tensor) -> LayerPass:
        """The same pass without what is ``hidden``, (R, H, 1 or m, fill + m) bool."""
        return replace(self, sight=self.sight.hiding(hidden), known={})

    def seen(self) -> Tensor:
        """(R, H) int64: slots that the chunk's newest token attends to."""
        return self.sight.newest.expand(*self.keys.shape[:2], -1).sum(-1)

    def attention_of(self, rows: slice) -> AttentionStatistics:
        """The statistics of these rows."""
        return AttentionStatistics(
            fetch=partial(self._queries, (rows,)),
            keys=self.keys[rows],
            positions=self.positions[rows],
            sight=self.sight.of(rows),
            asking=self.cohort.feed.positions[rows],
            scaling=self.scaling,
            softcap=self.softcap,
            known=self.known,
            place=(rows.start, rows.stop),
        )

    def _queries(self, part: tuple[slice, ...]) -> Tensor:
        return self.query[part]

    def view(self, group: Group, state: dict[str, Tensor]) -> CacheView:
        """What this group's policy is shown after attention: slots and chunk."""
        rows = group.rows
        return self.cohort.view(
            group,
            self.index,
            keys=self.keys[rows],
            values=self.values[rows],
            positions=self.positions[rows],
            attention=self.attention_of(rows),
            state=state,
            arriving=self.layer.chunk_keys[rows],
        )

    def prompt_view(self, group: Group, text: slice) -> CacheView:
        """One row's whole prompt without its padding, before attention. The cache is still empty."""
        whole = self.view(group, {})
        keys, positions = whole.keys[:, :, text], whole.positions[..., text]
        asking = self.cohort.feed.positions[group.rows, text]
        return replace(
            whole,
            keys=keys,
            values=whole.values[:, :, text],
            positions=positions,
            attention=AttentionStatistics(
                fetch=partial(self._queries, (group.rows, slice(None), text)),
                keys=keys,
                positions=positions,
                sight=AttentionMask(asking >= 0, positions[:, :1, :0] >= 0),
                asking=asking,
                scaling=self.scaling,
                softcap=self.softcap,
            ),
            arriving=whole.arriving[:, :, text],
        )

    def view_before(self, group: Group, state: dict[str, Tensor]) -> CacheView:
        """What it is shown before attention: the old slots alone, with room left for the token to come."""
        fill = self.layer.fill
        widths = self.cohort.feed.widths[group.rows]
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
    """Unrotated queries and keys, rotated as their tokens stand inside the cache."""
    index = ranks(positions)
    asking = index[..., -query.shape[2] :].repeat_interleave(query.shape[1] // keys.shape[1], dim=1)
    return rope.rotate(query, asking), rope.rotate(keys, index)
