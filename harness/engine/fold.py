"""All layers of a pass settled at once: to a policy, the same row in another layer is one more row.

To settle a layer is to dispatch many operations on small tensors, which in a decode step cost more than the attention
between them and in a block more than a twentieth of it. They are done once, after the last layer, over (R · L, H, N)
instead. A policy that asks which layer it is shown chooses at its layer, and waits with the others to have its choice
stored. What is kept is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from harness.engine.attention import attend
from harness.engine.cache import SlotLayer, StateKey
from harness.engine.choice import Choice, choose
from harness.engine.group_attention import GroupAttention
from harness.engine.sight import Sight
from policies import CacheView, Policy

if TYPE_CHECKING:
    from harness.engine.cohort import Cohort, Group

Number = TypeVar("Number")


class Fold:
    """One pass of a cohort, layers folded into rows: row r · L + l is row r in layer l."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort, self.layers = cohort, cohort.layers
        self.layer = _all_layers(cohort)
        # Groups that have to be asked at every layer, and what they chose there.
        self.early = {group.number: list[Choice]() for group in cohort.groups if not layers_are_rows(group.policy)}
        self.queries: list[Tensor] = []  # (R, H·G, m, D) of each layer
        self.scaling: float
        self.softcap: float | None

    @staticmethod
    def of(cohort: Cohort) -> Fold | None:
        """For this pass, where that is possible."""
        if not cohort.folds or not cohort.uniform or cohort.watchers or cohort.rope is not None or cohort.shrinks:
            return None
        return Fold(cohort) if all(settles_late(group.policy) for group in cohort.groups) else None

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """One layer's output (R, m, H·G, D); what its policies need is kept until all layers have been here."""
        self.queries.append(query)
        self.scaling, self.softcap = scaling, softcap
        return attend(query, keys, values, self.cohort.sight, scaling, softcap)

    def settle(self) -> None:
        """Update states, select, and store what stays, in all layers."""
        cohort, layer, layers = self.cohort, self.layer, self.layers
        arriving = cohort.feed.positions.repeat_interleave(layers, 0)
        cohort.tally.attended(cohort.sight.newest.sum(-1))
        filled = layer.arrived(arriving)
        query = torch.stack(self.queries, 1).flatten(0, 1)
        self.queries.clear()
        kept = None if cohort.appends else filled
        states: dict[StateKey, Tensor] = {}
        for group in cohort.groups:
            if group.number in self.early:
                choice = self._collected(group)
            else:
                choice = choose(cohort, group, partial(self._view, query=query, arriving=arriving), layers)
            states |= {key: choice.states[key.name] for key in self._stored(group)}
            if choice.kept is not None:
                assert kept is not None
                kept[self._folded(group.rows)] = choice.kept
        if kept is None:
            layer.append(arriving, states)
        else:
            cohort.tally.selected(self._by_row(kept.sum(-1)), cohort.targets_tensor)
            layer.positions[..., layer.fill : layer.fill + cohort.feed.width] = -1  # the chunk leaves the tail now
            targets = cohort.targets_tensor.repeat_interleave(layers, 0)
            layer.absorb(kept, targets, max(cohort.targets), arriving, states)
        cohort.tally.settled(self._by_row(layer.held()))
        for each in cohort.cache.layers:
            each.fill = layer.fill
            each.release()

    def _collected(self, group: Group) -> Choice:
        """The choices that were made layer by layer, as one."""
        choices = self.early[group.number]
        kept = [choice.kept for choice in choices if choice.kept is not None]
        states = {
            name: torch.stack([choice.states[name] for choice in choices], 1).flatten(0, 1)
            for name in group.policy.state
        }
        return Choice(torch.stack(kept, 1).flatten(0, 1) if kept else None, states)

    def _view(self, group: Group, query: Tensor, arriving: Tensor) -> CacheView:
        """Slots and chunk of a group in all layers, the policy's state brought up to this pass."""
        cohort, layer, layers = self.cohort, self.layer, self.layers
        here, rows = slice(0, layer.fill + cohort.feed.width), self._folded(group.rows)
        stored = self._stored(group)
        for state in stored.values():
            state[:, :, layer.fill : here.stop] = 0
        keys, values = (each[rows] for each in layer.attended())
        positions, seen = layer.positions[rows, :, here], cohort.sight.of(group.rows)
        view = CacheView(
            keys=keys,
            values=values,
            positions=positions,
            attention=GroupAttention(
                query=query[rows],
                keys=keys,
                positions=positions,
                sight=Sight(
                    seen.valid.repeat_interleave(layers, 0), seen.filled.repeat_interleave(layers, 0), seen.plain
                ),
                asking=arriving[rows],
                scaling=self.scaling,
                softcap=self.softcap,
            ),
            state={key.name: state[:, :, here] for key, state in stored.items()},
            counts=self._each(cohort.arrived[group.rows]),
            lengths=self._each(cohort.lengths[group.rows]),
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

    def _each(self, numbers: Iterable[Number]) -> tuple[Number, ...]:
        """By folded row."""
        return tuple(number for number in numbers for _ in range(self.layers))

    def _by_row(self, numbers: Tensor) -> Tensor:
        """(R · L, H) to (R, L · H)."""
        return numbers.view(len(self.cohort.rows), -1)


def settles_late(policy: Policy) -> bool:
    """Whether a policy's choice may be stored after the last layer: no attention of this pass depends on either."""
    return policy.rope == "absolute" and policy.logit_scale == "none" and not policy.schedule.evict_first


def layers_are_rows(policy: Policy) -> bool:
    """Whether what a policy does does not depend on which layer it is shown, nor on layers in order."""
    if policy.hindsight or policy.carried or policy.counts_layers:
        return False
    stage = None if policy.prompt_stage is None else policy.prompt_stage.scorer
    parts = [part for part in (policy.scorer, policy.correction, stage) if part is not None]
    return type(policy) is Policy and all(getattr(part, "layers_as_rows", False) for part in parts)


def _all_layers(cohort: Cohort) -> SlotLayer:
    """The slots of all layers as those of one with L times the rows: views, not copies."""
    shelf, first, layers = cohort.shelf, cohort.cache.layers[0], cohort.layers
    layer = SlotLayer(first.capacity, first.tail, shelf, 0)
    layer.keys, layer.values = shelf.keys.flatten(0, 1), shelf.values.flatten(0, 1)
    layer.positions = shelf.positions.flatten(0, 1)
    layer.fill = first.fill
    layer.is_initialized = True
    for group in cohort.groups:
        rows = slice(group.rows.start * layers, group.rows.stop * layers)
        for name, kind in group.policy.state.items():
            state = shelf.state(name, group.number, len(group.budgets), kind)
            layer.states[StateKey(name, rows, kind, group.number)] = state.flatten(0, 1)
    return layer
