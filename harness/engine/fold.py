"""Decode with all layers settled at once: to a policy, the same row in another layer is one more row.

In a decode step little is computed and much is dispatched: some thirty operations on small tensors per layer cost more
than the attention between them. Where one policy evicts after attention and does not ask which layer it sees, they are
done once, after the last layer, over (L · R, H, N) instead. What is kept is the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.engine.attention import attend
from harness.engine.cache import SlotLayer, StateKey
from harness.engine.group_attention import GroupAttention
from harness.engine.sight import Sight
from policies import CacheView, Policy

if TYPE_CHECKING:
    from harness.engine.cohort import Cohort, Group


class Fold:
    """One decode step of a cohort, layers folded into rows, layer by layer: row l · R + r is row r in layer l."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.layer = _all_layers(cohort)
        self.queries: list[Tensor] = []  # (R, H·G, 1, D) of each layer
        self.scaling: float
        self.softcap: float | None

    @staticmethod
    def of(cohort: Cohort) -> Fold | None:
        """For this pass, where that is possible."""
        if len(cohort.groups) > 1 or not cohort.uniform or cohort.watchers or cohort.rope is not None:
            return None
        if cohort.shrinks or not may_fold(cohort.rows[0].policy):
            return None
        return Fold(cohort)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None) -> Tensor:
        """One layer's output (R, 1, H·G, D); what its policy needs is kept until all layers have been here."""
        self.queries.append(query)
        self.scaling, self.softcap = scaling, softcap
        return attend(query, keys, values, self.cohort.sight, scaling, softcap)

    def settle(self) -> None:
        """Update states, select, and store what stays, in all layers."""
        cohort, layer, layers = self.cohort, self.layer, self.cohort.layers
        (group,) = cohort.groups
        over = cohort.over(group)
        arriving = cohort.feed.positions.repeat(layers, 1)
        cohort.tally.attended(cohort.sight.newest.sum(-1))
        states: dict[StateKey, Tensor] = {}
        filled = layer.arrived(arriving)
        kept = None if cohort.appends else filled
        if any(over) or group.policy.is_stateful:
            view = self._view(group, arriving)
            states = {key: view.state[key.name] for key in layer.states}
            if any(over):
                kept, is_nan = group.policy.keep(view)
                cohort.tally.called(group.rows, over, is_nan.view(layers, -1).any(0), layers)
                cohort.tally.selected(self._by_row(kept.sum(-1)), cohort.targets_tensor)
        if kept is None:
            layer.append(arriving, states)
        else:
            layer.positions[..., layer.fill] = -1  # where the token goes from the tail is decided now
            layer.absorb(kept, cohort.targets_tensor.repeat(layers, 1, 1), max(cohort.targets), arriving, states)
        cohort.tally.settled(self._by_row(layer.held()))
        for each in cohort.cache.layers:
            each.fill = layer.fill
            each.release()

    def _view(self, group: Group, arriving: Tensor) -> CacheView:
        """Slots and chunk of all layers, the policy's state brought up to this pass."""
        cohort, layer, layers = self.cohort, self.layer, self.cohort.layers
        here = slice(0, layer.fill + 1)
        for state in layer.states.values():
            state[:, :, layer.fill] = 0
        keys, values = layer.attended()
        positions, seen = layer.positions[..., here], cohort.sight
        view = CacheView(
            keys=keys,
            values=values,
            positions=positions,
            attention=GroupAttention(
                query=torch.stack(self.queries).flatten(0, 1),
                keys=keys,
                positions=positions,
                sight=Sight(seen.valid.repeat(layers, 1), seen.filled.repeat(layers, 1, 1), seen.plain),
                asking=arriving,
                scaling=self.scaling,
                softcap=self.softcap,
            ),
            state={key.name: state[:, :, here] for key, state in layer.states.items()},
            counts=cohort.arrived * layers,
            lengths=tuple(cohort.lengths) * layers,
            budgets=group.budgets * layers,
            layers=layers,
            phase="decode",
            prompt_lengths=tuple(len(row.tokens) for row in cohort.rows) * layers,
            arriving=layer.chunk_keys,
        )
        return replace(view, state=dict(group.policy.update(view))) if group.policy.is_stateful else view

    def _by_row(self, numbers: Tensor) -> Tensor:
        """(L · R, H) to (R, L · H)."""
        return numbers.view(self.cohort.layers, len(self.cohort.rows), -1).transpose(0, 1).flatten(1)


def may_fold(policy: Policy) -> bool:
    """Whether a policy's decode steps do not depend on which layer it is shown, nor on layers in order."""
    if policy.rope != "absolute" or policy.logit_scale != "none" or policy.hindsight or policy.schedule.evict_first:
        return False
    if policy.carried or policy.counts_layers or not policy.uniform:
        return False
    parts = [part for part in (policy.scorer, policy.correction) if part is not None]
    return type(policy) is Policy and all(getattr(part, "layers_as_rows", False) for part in parts)


def _all_layers(cohort: Cohort) -> SlotLayer:
    """The slots of all layers as those of one with L times the rows: views, not copies."""
    shelf, first = cohort.shelf, cohort.cache.layers[0]
    layer = SlotLayer(first.capacity, first.tail, shelf, 0)
    layer.keys, layer.values = shelf.keys.flatten(0, 1), shelf.values.flatten(0, 1)
    layer.positions = shelf.positions.flatten(0, 1)
    layer.fill = first.fill
    layer.is_initialized = True
    (group,) = cohort.groups
    everyone = slice(0, len(layer.keys))
    for name, kind in group.policy.state.items():
        state = shelf.state(name, group.number, len(cohort.rows), kind)
        layer.states[StateKey(name, everyone, kind, group.number)] = state.flatten(0, 1)
    return layer
