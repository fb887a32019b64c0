"""Around attention in one layer: who must go before it, who must go after it, and where the chunk's survivors lie."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.engine.batch.evict_all_layers import LayerBatch
from harness.engine.batch.group import Group, Selection, select
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.cache.slot_layer import StateKey
from policies import CacheView

if TYPE_CHECKING:
    from harness.engine.batch.group import Group


Spared = dict[int, Tensor]  # by group: (r, H, fill + m) bool, decided before attention


def evict_first(work: LayerPass) -> tuple[LayerPass, Spared]:
    """Order "evict, append, attend": groups that want it choose among the old slots, and the victims are hidden.

    Returns the pass without what is gone, and each such group's choice for `settle`.
    """
    cohort, spared = work.cohort, {}
    for group in cohort.groups:
        if cohort.foresees(group) and any(cohort.over(group)):
            is_nan = work.query[group.rows].isnan().flatten(1).any(-1) | work.keys[group.rows].isnan().flatten(1).any(
                -1
            )
            work, spared[group.number] = _foreseen(work, group)
            cohort.tally.called(group.rows, cohort.over(group), is_nan)
    hidden = torch.zeros_like(work.positions, dtype=torch.bool)
    waits_for_room = False
    for group in cohort.groups:
        over = cohort.over(group)
        if not cohort.evicts_first(group) or not any(over):
            continue
        view = work.view_before(group, _stored(work, group))
        choice, is_nan = group.policy.keep(view)
        cohort.tally.called(group.rows, over, is_nan)
        arriving = work.positions[group.rows, :, work.layer.fill :] >= 0
        refused = arriving & ~group.policy.admits(view).unsqueeze(-1)
        spared[group.number] = torch.cat([choice, arriving & ~refused], -1)
        unseen = torch.zeros_like(refused) if group.policy.self_visible else refused  # padding goes on seeing itself
        hidden[group.rows] = torch.cat([~choice, unseen], -1)
        waits_for_room = True
    return (work.hiding(hidden.unsqueeze(2)) if waits_for_room else work), spared


def _foreseen(work: LayerPass, group: Group) -> tuple[LayerPass, Tensor]:
    """The pass with every token hidden from its death on, and the survivors (r, H, m) of the group's prompts."""
    length = work.cohort.feed.width
    hidden = work.positions.new_zeros(*work.positions.shape[:2], length, length, dtype=torch.bool)
    survivors = work.positions[group.rows] >= 0
    for row, budget in enumerate(group.budgets, start=group.rows.start):
        text = slice(work.cohort.feed.width - work.cohort.feed.widths[row], None)
        deaths = group.policy.deaths(
            work.prompt_view(replace(group, rows=slice(row, row + 1), budgets=(budget,)), text)
        )[0]
        asking = torch.arange(deaths.shape[-1], device=deaths.device)
        hidden[row, :, text, text] = asking[:, None] >= deaths[:, None, :]
        survivors[row - group.rows.start, :, text] = deaths > asking[-1]
    return work.hiding(hidden), survivors


def evict(work: LayerPass, spared: Spared) -> None:
    """Order "append, attend, evict" (policies.md 1.2): update states, select, and store what stays."""
    cohort, layer = work.cohort, work.layer
    cohort.tally.attended(work.seen())
    for watcher in cohort.watchers:
        watcher.attended(work)
    kept = None if cohort.appends else work.positions >= 0
    states: dict[StateKey, Tensor] = {}
    for group in cohort.groups:
        choice = _selected(work, group, spared)
        states |= {key: choice.states[key.name] for key in _keys(group)}
        if choice.kept is not None:
            assert kept is not None
            kept[group.rows] = choice.kept
    for leaving in cohort.leaving:
        leaving.settle(work, states)
    if not cohort.keeps_chunk:
        layer.release()
        return
    if kept is None:
        layer.append(cohort.feed.positions, states)
    elif cohort.shrinks:
        everyone = torch.arange(len(cohort.rows), device=cohort.device)
        cohort.tally.selected(kept.sum(-1), cohort.targets_tensor)
        layer.adopt(layer, everyone, kept, max(cohort.targets), work.positions, states)
    else:
        if cohort.uniform:
            cohort.tally.selected(kept.sum(-1), cohort.targets_tensor)
        if cohort.counts_layers:
            cohort.count_kept(kept, work.positions)
        layer.absorb(kept, cohort.targets_tensor, max(cohort.targets), cohort.feed.positions, states)
    cohort.tally.settled(layer.held())
    for watcher in cohort.watchers:
        watcher.settled(work)
    layer.release()


def select_early(work: LayerPass, fold: LayerBatch) -> None:
    """Let the groups choose that cannot wait for the last layer."""
    kept = work.positions >= 0
    for group in work.cohort.groups:
        if group.number in fold.early:
            choice = _selected(work, group, {})
            fold.early[group.number].append(choice)
            if choice.kept is not None:
                kept[group.rows] = choice.kept
    if work.cohort.counts_layers:
        work.cohort.count_kept(kept, work.positions)


def _selected(work: LayerPass, group: Group, spared: Spared) -> Selection:
    """What one group decides in this layer; what it carries per row is put down at once."""
    choice = select(work.cohort, group, partial(view_after, work), spared=spared.get(group.number))
    work.layer.carried |= {(name, group.number): choice.states[name] for name in group.policy.carried}
    return choice


def view_after(work: LayerPass, group: Group) -> CacheView:
    """What a group's policy is shown after attention, its state brought up to this pass."""
    state = {name: _with_room(old, work) for name, old in _stored(work, group).items()}
    view = work.view(group, state | _carried(work, group))
    return work.view(group, dict(group.policy.update(view))) if group.policy.is_stateful else view


def _keys(group: Group) -> list[StateKey]:
    return [StateKey(name, group.rows, kind, group.number) for name, kind in group.policy.state.items()]


def _stored(work: LayerPass, group: Group) -> dict[str, Tensor]:
    """The group's state for the old slots, (r, H, fill, …) each."""
    return {key.name: work.layer.state(key) for key in _keys(group)}


def _carried(work: LayerPass, group: Group) -> dict[str, Tensor]:
    """What the group's policy carries per row; nothing before the first chunk."""
    places = {name: (name, group.number) for name in group.policy.carried}
    return {name: work.layer.carried[place] for name, place in places.items() if place in work.layer.carried}


def _with_room(old: Tensor, work: LayerPass) -> Tensor:
    """The same with zeros for the chunk, (r, H, fill + m, …)."""
    new = old.new_zeros(*old.shape[:2], work.cohort.feed.width, *old.shape[3:])
    return torch.cat([old, new], 2)
