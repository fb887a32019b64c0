"""All layers of a pass settled at once: to a policy, the same row in another layer is one more row.

To settle a layer is to dispatch many operations on small tensors, which in a decode step cost more than the attention
between them and in a block more than a twentieth of it. They are done once, after the last layer, over (R · L, H, N)
instead. A policy that asks which layer it is shown chooses at its layer, and waits with the others to have its choice
stored. What is kept is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from harness.engine.attention.attend import attend, attend_openly
from harness.engine.attention.attention_statistics import AttentionStatistics
from harness.engine.attention.mask import in_layers
from harness.engine.batch.group import Group, Selection, select
from harness.engine.cache.slot_layer import SlotLayer, StateKey
from policies import CacheView, Policy

if TYPE_CHECKING:
    from harness.engine.batch.batch import Batch
    from harness.engine.batch.group import Group

Number = TypeVar("Number")


class LayerBatch:
    """One pass of a cohort, layers folded into rows: row r · L + l is row r in layer l."""

    def __init__(self, cohort: Batch) -> None:
        self.cohort, self.layers = cohort, cohort.layers
        self.layer = _all_layers(cohort)
        # Groups that have to be asked at every layer, and what they chose there.
        self.early = {group.number: list[Selection]() for group in cohort.groups if not layers_are_rows(group.policy)}
        self.queries: list[Tensor] = []  # (R, H·G, m, D) of each layer
        self.given: list[Tensor] = []  # (R, H, G, N) of each layer, where attention is computed in the open
        self.asked: list[Sized] = []  # what policies asked of attention
        self.scaling: float
        self.softcap: float | None

    @staticmethod
    def of(cohort: Batch) -> LayerBatch | None:
        """For this pass, where that is possible."""
        if not cohort.folds or not cohort.uniform or cohort.watchers or cohort.rope is not None or cohort.shrinks:
            return None
        return LayerBatch(cohort) if all(evicts_late(group.policy) for group in cohort.groups) else None

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """One layer's output (R, m, H·G, D); what its policies need is kept until all layers have been here."""
        self.queries.append(query)
        self.scaling, self.softcap = scaling, softcap
        if not self._in_the_open(query):
            return attend(query, keys, values, self.cohort.sight, scaling, softcap)
        output, given = attend_openly(query, keys, values, self.cohort.sight, scaling, softcap)
        self.given.append(given)
        return output

    def _in_the_open(self, query: Tensor) -> bool:
        """Whether to keep a single token's probabilities: where policies asked for statistics last time."""
        one = query.shape[2] == 1 and query.dtype == torch.float32 and query.device.type == "cpu"
        return one and self.cohort.asks_attention

    def settle(self) -> None:
        """Update states, select, and store what stays, in all layers."""
        cohort, layer, layers = self.cohort, self.layer, self.layers
        arriving = self._spread(cohort.feed.positions)
        cohort.tally.attended(cohort.sight.counts)
        layer.arrived(arriving)
        given = _of_all_layers(self.given) if self.given else None
        states: dict[StateKey, Tensor] = {}
        chosen: list[tuple[slice, Tensor]] = []
        for group in cohort.groups:
            if group.number in self.early:
                choice = self._collected(group)
            else:
                choice = select(cohort, group, partial(self._view, given=given, arriving=arriving), layers)
            states |= {key: choice.states[key.name] for key in self._stored(group)}
            if choice.kept is not None:
                chosen.append((self._folded(group.rows), choice.kept))
        if cohort.appends:
            layer.append(arriving, states)
        else:
            kept = self._together(chosen)
            cohort.tally.selected(self._by_row(kept.sum(-1)), cohort.targets_tensor)
            layer.positions[..., layer.fill : layer.fill + cohort.feed.width].fill_(-1)  # the chunk leaves the tail now
            layer.absorb(kept, self._spread(cohort.targets_tensor), max(cohort.targets), arriving, states)
        cohort.tally.settled(self._by_row(layer.held()))
        cohort.asks_attention = any(self.asked)
        for each in cohort.cache.layers:
            each.fill = layer.fill
            each.release()

    @cached_property
    def _query(self) -> Tensor:
        """(R · L, H·G, m, D): most policies never ask, and it is a copy."""
        whole = _of_all_layers(self.queries)
        self.queries.clear()
        return whole

    def _together(self, chosen: list[tuple[slice, Tensor]]) -> Tensor:
        """(R · L, H, fill + m) bool: what groups chose, and of the others all that is there."""
        if len(chosen) == 1 and len(chosen[0][1]) == len(self.layer.positions):
            return chosen[0][1]
        kept = self.layer.positions[..., : self.layer.fill + self.cohort.feed.width] >= 0
        for rows, choice in chosen:
            kept[rows] = choice
        return kept

    def _collected(self, group: Group) -> Selection:
        """The choices that were made layer by layer, as one."""
        choices = self.early[group.number]
        kept = [choice.kept for choice in choices if choice.kept is not None]
        states = {name: _of_all_layers([choice.states[name] for choice in choices]) for name in group.policy.state}
        return Selection(_of_all_layers(kept) if kept else None, states)

    def _view(self, group: Group, given: Tensor | None, arriving: Tensor) -> CacheView:
        """Slots and chunk of a group in all layers, the policy's state brought up to this pass."""
        cohort, layer, layers = self.cohort, self.layer, self.layers
        here, rows = slice(0, layer.fill + cohort.feed.width), self._folded(group.rows)
        stored = self._stored(group)
        for state in stored.values():
            state[:, :, layer.fill : here.stop].zero_()
        keys, values = (each[rows] for each in layer.attended())
        positions = layer.positions[rows, :, here]
        attention = AttentionStatistics(
            fetch=lambda: self._query[rows],
            keys=keys,
            positions=positions,
            sight=cohort.sight.in_layers(layers).of(rows),
            asking=arriving[rows],
            scaling=self.scaling,
            softcap=self.softcap,
            given=None if given is None else given[rows],
        )
        self.asked.append(attention.known)
        view = CacheView(
            keys=keys,
            values=values,
            positions=positions,
            attention=attention,
            state={key.name: state[:, :, here] for key, state in stored.items()},
            counts=self._each(cohort.arrived[group.rows]),
            lengths=cohort.lengths_of(group, layers),
            seen_now=self._spread(cohort.seen[group.rows]),
            is_full=cohort.is_full(group.rows, here.stop),
            made_once=cohort.on_device,
            budgets=self._each(group.budgets),
            layers=layers,
            phase=cohort.phase,
            prompt_lengths=self._each(len(row.tokens) for row in cohort.rows[group.rows]),
            arriving=layer.chunk_keys[rows],
        )
        return replace(view, state=dict(group.policy.update(view))) if group.policy.is_stateful else view

    def _stored(self, group: Group) -> dict[StateKey, Tensor]:
        return {key: state for key, state in self.layer.states.items() if key.group == group.number}

    def _folded(self, rows: slice) -> slice:
        return slice(rows.start * self.layers, rows.stop * self.layers)

    def _spread(self, by_row: Tensor) -> Tensor:
        """(R, …) to (R · L, …): the same in all layers. Not to be written to."""
        return in_layers(by_row, self.layers)

    def _each(self, numbers: Iterable[Number]) -> tuple[Number, ...]:
        """By folded row."""
        return tuple(number for number in numbers for _ in range(self.layers))

    def _by_row(self, numbers: Tensor) -> Tensor:
        """(R · L, H) to (R, L · H)."""
        return numbers.view(len(self.cohort.rows), -1)


def _of_all_layers(by_layer: list[Tensor]) -> Tensor:
    """(R, …) of each layer to (R · L, …)."""
    return torch.stack(by_layer, 1).flatten(0, 1)


def evicts_late(policy: Policy) -> bool:
    """Whether a policy's choice may be stored after the last layer: no attention of this pass depends on either."""
    return policy.rope == "absolute" and policy.logit_scale == "none" and not policy.schedule.evict_first


def layers_are_rows(policy: Policy) -> bool:
    """Whether what a policy does does not depend on which layer it is shown, nor on layers in order."""
    if policy.hindsight or policy.carried or policy.counts_layers:
        return False
    stage = None if policy.prompt_stage is None else policy.prompt_stage.scorer
    parts = [part for part in (policy.scorer, policy.correction, stage) if part is not None]
    return type(policy) is Policy and all(getattr(part, "layers_as_rows", False) for part in parts)


def _all_layers(cohort: Batch) -> SlotLayer:
    """The slots of all layers as those of one with L times the rows: views, not copies."""
    shelf, first, layers = cohort.shelf, cohort.cache.layers[0], cohort.layers
    layer = SlotLayer(first.capacity, first.tail, shelf, 0)
    layer.keys, layer.values = shelf.keys.flatten(0, 1), shelf.values.flatten(0, 1)
    layer.positions, layer.first = shelf.positions.flatten(0, 1), shelf.first.flatten(0, 1)
    layer.fill = first.fill
    layer.is_initialized = True
    for group in cohort.groups:
        rows = slice(group.rows.start * layers, group.rows.stop * layers)
        for name, kind in group.policy.state.items():
            state = shelf.state(name, group.number, len(group.budgets), kind)
            layer.states[StateKey(name, rows, kind, group.number)] = state.flatten(0, 1)
    return layer
