"""One layer in one forward pass: what is attended, who may see what, and the statistics policies ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from harness.engine.attention import attend, column_sums, strongest_head
from harness.engine.cache import SlotLayer
from harness.engine.cohort import Cohort, Group
from harness.engine.ragged import RaggedLayer
from harness.engine.rope import CacheRope, ranks
from policies import CacheView
from policies.view import AttentionRows


@dataclass(frozen=True)
class LayerPass:
    """Everything between the model's projections and the settled cache. Shapes as in `attend`."""

    cohort: Cohort
    layer: SlotLayer | RaggedLayer
    index: int  # of the layer
    query: Tensor  # (R, H·G, m, D)
    keys: Tensor  # (R, H, fill + m, D), slots and chunk
    values: Tensor
    positions: Tensor  # (R, H, fill + m) int32, -1 = empty
    visible: Tensor  # (R, 1 or H, m, fill + m) bool
    scaling: float
    softcap: float | None

    @staticmethod
    def of(
        cohort: Cohort, index: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None
    ) -> LayerPass:
        """From what transformers hands to an attention function."""
        layer = cohort.cache.layers[index]
        chunk = cohort.feed.positions.unsqueeze(1).expand(-1, keys.shape[1], -1)
        positions = torch.cat([layer.slot_positions, chunk], -1)
        visible = cohort.visible
        if visible is None:
            visible = cohort.feed.visible(layer.slot_positions >= 0)
        if cohort.rope is not None:
            query, keys = _at_cache_positions(cohort.rope, query, keys, positions)
        for group in cohort.groups:
            if group.policy.logit_scale == "log512":
                attended = (positions[group.rows, 0] >= 0).sum(-1)[:, None, None, None]
                query = query.index_copy(
                    0, _indices(group, query), query[group.rows] * (attended.log() / log(512)).to(query.dtype)
                )
        return LayerPass(cohort, layer, index, query, keys, values, positions, visible, scaling, softcap)

    def attend(self) -> Tensor:
        """The attention output for the model, (R, m, H·G, D)."""
        return attend(self.query, self.keys, self.values, self.visible, self.scaling, self.softcap)

    def hiding(self, hidden: Tensor) -> LayerPass:
        """The same pass without the slots that are (R, H, fill + m) ``hidden``."""
        return replace(self, visible=self.visible & ~hidden.unsqueeze(2))

    def seen(self) -> Tensor:
        """(R, H) int64: slots that the chunk's newest token attends to."""
        return self.visible[:, :, -1].expand(*self.keys.shape[:2], -1).sum(-1)

    def attention_of(self, rows: slice) -> GroupAttention:
        """The statistics of these rows."""
        return GroupAttention(self, rows)

    def view(self, group: Group, state: dict[str, Tensor]) -> CacheView:
        """What this group's policy is shown after attention: slots and chunk."""
        cohort, rows = self.cohort, group.rows
        return CacheView(
            keys=self.keys[rows],
            values=self.values[rows],
            positions=self.positions[rows],
            attention=self.attention_of(rows),
            state=state,
            counts=cohort.arrived[rows],
            lengths=tuple(cohort.lengths[rows]),
            budgets=group.budgets,
            layer=self.index,
            layers=cohort.layers,
            phase=cohort.phase,
            prompt_lengths=tuple(len(row.tokens) for row in cohort.rows[rows]),
            token_ids=cohort.fed[rows],
            arriving=self.layer.chunk_keys[rows],
            future=cohort.future_of(self.index, group, self.positions[rows]),
            kept_before=cohort.kept_before[rows],
        )

    def prompt_view(self, group: Group, text: slice) -> CacheView:
        """One row's whole prompt without its padding, before attention. The cache is still empty."""
        whole = self.view(group, {})
        unpadded = replace(self, query=self.query[:, :, text])
        return replace(
            whole,
            keys=whole.keys[:, :, text],
            values=whole.values[:, :, text],
            positions=whole.positions[..., text],
            attention=unpadded.attention_of(group.rows),
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
            budgets=tuple(budget - width for budget, width in zip(whole.budgets, widths, strict=True)),
        )


def _indices(group: Group, like: Tensor) -> Tensor:
    return torch.arange(group.rows.start, group.rows.stop, device=like.device)


def _at_cache_positions(rope: CacheRope, query: Tensor, keys: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Unrotated queries and keys, rotated as their tokens stand inside the cache."""
    index = ranks(positions)
    asking = index[..., -query.shape[2] :].repeat_interleave(query.shape[1] // keys.shape[1], dim=1)
    return rope.rotate(query, asking), rope.rotate(keys, index)


@dataclass(frozen=True)
class GroupAttention:
    """`policies.view.Attention` for the rows of one group: computed for them only, and only when asked."""

    full: LayerPass
    rows_of: slice

    def received(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, N): see `policies.view.Attention`."""
        return self.received_by_head(last_rows).mean(2)

    def received_by_head(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, G, N)."""
        return self._sums(last_rows, self.full.visible[self.rows_of])

    def received_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, N). Padding attends to everything, for a softmax over nothing is not a number, and counts for
        nothing."""
        full, here = self.full, self.rows_of
        places = full.positions[here].unsqueeze(2)
        present = (asked >= 0)[:, None, :, None]
        visible = (places >= 0) & (places <= asked[:, None, :, None]) | ~present
        return column_sums(queries, full.keys[here], visible, asked >= 0, "all", full.scaling, full.softcap)

    def received_within(self, distance: Tensor) -> Tensor:
        """(R, H, N): only from queries less than ``distance`` (R, 1, 1) tokens away. Probabilities stay those of
        the whole row, so the distance selects what is counted, not what is attended."""
        here = self.rows_of
        asking = self.full.cohort.feed.positions[here][:, None, :, None]
        near = asking - self.full.positions[here].unsqueeze(2) < distance.unsqueeze(-1)
        return self._sums("all", self.full.visible[here], near).mean(2)

    def strongest(self, last_rows: int) -> Tensor:
        """(R, N): mean over rows of the largest probability of any query head."""
        here, full = self.rows_of, self.full
        valid = full.cohort.feed.valid[here]
        total = strongest_head(
            full.query[here], full.keys[here], full.visible[here], valid, last_rows, full.scaling, full.softcap
        )
        return total / self.rows(last_rows).squeeze(-1).clamp(min=1)

    def queries(self, last_rows: AttentionRows) -> Tensor:
        """(R, H·G, m, D), right-aligned."""
        query = self.full.query[self.rows_of]
        return query if last_rows == "all" else query[:, :, -last_rows:]

    def rows(self, last_rows: AttentionRows) -> Tensor:
        """(R, 1, 1): query rows that are tokens."""
        valid = self.full.cohort.feed.valid[self.rows_of]
        counted = valid if last_rows == "all" else valid[:, -last_rows:]
        return counted.sum(-1).view(-1, 1, 1)

    def _sums(self, last_rows: AttentionRows, visible: Tensor, counted: Tensor | None = None) -> Tensor:
        here, full = self.rows_of, self.full
        valid = full.cohort.feed.valid[here]
        return column_sums(
            full.query[here], full.keys[here], visible, valid, last_rows, full.scaling, full.softcap, counted
        )
