"""Eviction in all layers at once, after the last layer of a pass: to a policy, a row in another layer is one more row.

Evicting in one layer dispatches many operations on small tensors. In a decode step they cost more than the attention
between them, and in a block more than a twentieth of it. `LayerBatch` runs them once, over (R · L, H, N). A policy that
looks at the layer it is shown selects while its layer is computed, and its selection is stored with all others. What is
kept is the same as with `harness.engine.batch.evict.evict` layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from harness.engine.attention.attend import attend, attend_with_sums, sums_come_with
from harness.engine.attention.attention_statistics import AttentionStatistics, Computed
from harness.engine.attention.mask import in_layers
from harness.engine.batch.group import Group, Selection, select
from harness.engine.cache.slot_layer import SlotLayer, StateKey
from policies import CacheView, Policy

if TYPE_CHECKING:
    from harness.engine.batch.batch import Batch

Number = TypeVar("Number")


class LayerBatch:
    """One pass of a batch with its layers as rows: row r · L + l is row r in layer l."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.layers = batch, batch.layers
        self.layer = _all_layers(batch)
        # Groups that must select at every layer, by number, with the selections made so far.
        self.early = {
            group.number: list[Selection]()
            for group in batch.groups
            if not layers_are_rows(group.policy) and (any(batch.over(group)) or group.is_stateful(batch.phase))
        }
        self.queries: list[Tensor] = []  # (R, H·G, m, D) of each layer
        self.sums: list[Tensor] = []  # (R, H, G, N) of each layer: what each slot received, if kept
        self.computed: list[Mapping[Computed, Tensor]] = []  # attention statistics that policies have read
        self.scaling: float
        self.softcap: float | None

    @staticmethod
    def of(batch: Batch) -> LayerBatch | None:
        """For this pass; None where layers must evict one by one."""
        if not batch.defers_eviction or not batch.uniform or batch.watchers or batch.rope is not None or batch.shrinks:
            return None
        return LayerBatch(batch) if all(evicts_late(group.policy) for group in batch.groups) else None

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """One layer's attention output (R, m, H·G, D). What policies need of it is kept until the pass ends."""
        self.queries.append(query)
        self.scaling, self.softcap = scaling, softcap
        asked = self.batch.asked_rows if query.shape[2] == 1 else self.batch.asked_rows & {"all"}
        if not asked or not sums_come_with(query, keys):
            return attend(query, keys, values, self.batch.mask, scaling, softcap)
        output, sums = attend_with_sums(query, keys, values, self.batch.mask, scaling, softcap)
        self.sums.append(sums)
        return output

    def evict(self) -> None:
        """Update states, select, and store what stays, in all layers."""
        batch, layer, layers = self.batch, self.layer, self.layers
        arriving = self._spread(batch.feed.positions)
        batch.statistics.attended(batch.mask.counts)
        layer.arrived(arriving)
        sums = _of_all_layers(self.sums) if self.sums else None
        states: dict[StateKey, Tensor] = {}
        selections: list[tuple[slice, Tensor]] = []
        for group in batch.groups:
            if group.number in self.early:
                selection = self._early_selection(group)
            else:
                selection = select(batch, group, partial(self._view, sums=sums, arriving=arriving), layers)
            states |= {key: selection.states[key.name] for key in self._stored(group) if selection.states}
            if group.number not in self.early and selection.states:
                for name in group.policy.carried:
                    batch.storage.carried[name, group.number].flatten(0, 1).copy_(selection.states[name])
            if selection.kept is not None:
                selections.append((self._rows(group.rows), selection.kept))
        if batch.appends:
            layer.append(arriving, states)
        else:
            kept = self._kept(selections)
            batch.statistics.selected(self._by_row(kept.sum(-1)), batch.targets_tensor)
            layer.positions[..., layer.fill : layer.fill + batch.feed.width].fill_(-1)  # the chunk leaves the tail now
            layer.evict(kept, self._spread(batch.targets_tensor), max(batch.targets), arriving, states)
        batch.statistics.evicted(self._by_row(layer.held()))
        batch.asked_rows = frozenset(last_rows for computed in self.computed for _, _, last_rows in computed)
        for each in batch.cache.layers:
            each.fill = layer.fill
            each.release()

    @cached_property
    def _query(self) -> Tensor:
        """(R · L, H·G, m, D): made only where a policy reads it, because it is a copy."""
        whole = _of_all_layers(self.queries)
        self.queries.clear()
        return whole

    def _kept(self, selections: list[tuple[slice, Tensor]]) -> Tensor:
        """(R · L, H, fill + m) bool: what the groups that selected keep, and all filled slots of the others."""
        if len(selections) == 1 and len(selections[0][1]) == len(self.layer.positions):
            return selections[0][1]
        kept = self.layer.positions[..., : self.layer.fill + self.batch.feed.width] >= 0
        for rows, selection in selections:
            kept[rows] = selection
        return kept

    def _early_selection(self, group: Group) -> Selection:
        """Selections that were made layer by layer, as one."""
        made = self.early[group.number]
        kept = [selection.kept for selection in made if selection.kept is not None]
        names = group.policy.state if all(selection.states for selection in made) else ()
        states = {name: _of_all_layers([selection.states[name] for selection in made]) for name in names}
        return Selection(_of_all_layers(kept) if kept else None, states)

    def _view(self, group: Group, sums: Tensor | None, arriving: Tensor) -> CacheView:
        """Slots and chunk of a group in all layers, the policy's state brought up to this pass."""
        batch, layer, layers = self.batch, self.layer, self.layers
        here, rows = slice(0, layer.fill + batch.feed.width), self._rows(group.rows)
        stored = self._stored(group)
        for state in stored.values():
            state[:, :, layer.fill : here.stop].zero_()
        keys, values = (each[rows] for each in layer.attended())
        positions = layer.positions[rows, :, here]
        attention = AttentionStatistics(
            fetch=lambda: self._query[rows],
            keys=keys,
            positions=positions,
            mask=batch.mask.in_layers(layers).of(rows),
            query_positions=arriving[rows],
            scaling=self.scaling,
            softcap=self.softcap,
            sums=None if sums is None else sums[rows],
        )
        self.computed.append(attention.computed)
        view = CacheView(
            keys=keys,
            values=values,
            positions=positions,
            attention=attention,
            state={key.name: state[:, :, here] for key, state in stored.items()} | self._carried(group),
            counts=self._each(batch.arrived[group.rows]),
            lengths=batch.lengths_of(group, layers),
            seen_now=self._spread(batch.seen[group.rows]),
            is_full=batch.is_full(group.rows, here.stop),
            made_once=batch.on_device,
            budgets=self._each(group.budgets),
            layers=layers,
            all_layers=True,
            phase=batch.phase,
            prompt_lengths=self._each(len(row.tokens) for row in batch.rows[group.rows]),
            arriving=layer.chunk_keys[rows],
            future=batch.future_of(group, positions),
            rotation=batch.rotation,
            output_heads=batch.output_heads,
        )
        return replace(view, state=dict(group.policy.update(view))) if group.policy.is_stateful else view

    def _stored(self, group: Group) -> dict[StateKey, Tensor]:
        return {key: state for key, state in self.layer.states.items() if key.group == group.number}

    def _carried(self, group: Group) -> dict[str, Tensor]:
        """What the group's policy carries, (r · L, …): it was first shown a chunk before slots existed."""
        return {name: self.batch.storage.carried[name, group.number].flatten(0, 1) for name in group.policy.carried}

    def _rows(self, rows: slice) -> slice:
        return slice(rows.start * self.layers, rows.stop * self.layers)

    def _spread(self, by_row: Tensor) -> Tensor:
        """(R, …) to (R · L, …): the same in all layers. Not to be written to."""
        return in_layers(by_row, self.layers)

    def _each(self, numbers: Iterable[Number]) -> tuple[Number, ...]:
        """Numbers of the batch's rows, repeated for the rows of all layers."""
        return tuple(number for number in numbers for _ in range(self.layers))

    def _by_row(self, numbers: Tensor) -> Tensor:
        """(R · L, H) to (R, L · H)."""
        return numbers.view(len(self.batch.rows), -1)


def _of_all_layers(by_layer: list[Tensor]) -> Tensor:
    """(R, …) of each layer to (R · L, …)."""
    return torch.stack(by_layer, 1).flatten(0, 1)


def evicts_late(policy: Policy) -> bool:
    """Whether a policy may evict after the last layer: no attention of this pass depends on what it evicts."""
    return policy.rope == "absolute" and policy.logit_scale == "none" and not policy.schedule.evict_first


def layers_are_rows(policy: Policy) -> bool:
    """Whether a policy can be shown all layers at once, as more rows."""
    if policy.counts_layers:
        return False
    stage = None if policy.prompt_stage is None else policy.prompt_stage.scorer
    parts = [part for part in (policy.scorer, policy.correction, stage) if part is not None]
    return type(policy) is Policy and all(getattr(part, "layers_as_rows", False) for part in parts)


def _all_layers(batch: Batch) -> SlotLayer:
    """The slots of all layers as those of one with L times the rows: views, not copies."""
    storage, first, layers = batch.storage, batch.cache.layers[0], batch.layers
    layer = SlotLayer(first.capacity, first.tail, storage, 0)
    layer.keys, layer.values = storage.keys.flatten(0, 1), storage.values.flatten(0, 1)
    layer.positions, layer.first = storage.positions.flatten(0, 1), storage.first.flatten(0, 1)
    layer.fill = first.fill
    layer.is_initialized = True
    for group in batch.groups:
        rows = slice(group.rows.start * layers, group.rows.stop * layers)
        for name, kind in group.policy.state.items():
            state = storage.state(name, group.number, len(group.budgets), kind)
            layer.states[StateKey(name, rows, kind, group.number)] = state.flatten(0, 1)
    return layer
