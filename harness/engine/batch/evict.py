"""Where slots are evicted: the attention function that transformers calls in every layer, and what happens around it.

transformers calls `slot_attention` under a name that `slots_enabled` sets for the length of a run. In each layer it
computes attention and then evicts, in one of two ways:

* `evict`, at once: update the policies' states, let every policy select, and store the survivors in the layer's slots
  (`SlotLayer.evict`, `RaggedLayer.evict`). Policies that must free slots before attention go first (`evict_first`).
* `LayerBatch.evict`, for all layers together after the last one, wherever no attention of the pass depends on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from harness.engine.attention.attend import attending_by
from harness.engine.batch.batch import Batch
from harness.engine.batch.group import Group, Selection, select
from harness.engine.batch.layer_batch import LayerBatch
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.cache.slot_layer import StateKey
from harness.engine.requests import EngineError
from policies import CacheView

NAME = "kvreplica_slots"  # a name without a mask function: transformers then builds no mask for it

QUERIES_AT_ONCE = 1 << 19  # of simulated evictions: HashEvict's codes of so many take 64 MiB while they are made

Preselected = dict[int, Tensor]  # by group: (r, H, fill + m) bool, what stays, chosen before attention


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    batch: Batch | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, then let the batch's policies evict. ``batch`` arrives as an extra keyword of the model call.

    ``query`` (R, H·G, m, D), already rotated; ``key`` and ``value`` are what `SlotLayer.update` returned.
    """
    if batch is None:
        raise EngineError("The slot attention was called outside of the engine: use Engine.generate instead.")
    if kwargs.get("s_aux") is not None:
        raise EngineError("This model adds learned attention sinks to the softmax, which the engine does not compute.")
    return attend_and_evict(batch, module.layer_idx, query, key, value, scaling, softcap), None


AttentionInterface.register(NAME, slot_attention)


@contextmanager
def slots_enabled(model: PreTrainedModel) -> Iterator[None]:
    """Within this block the model attends through `slot_attention`; afterwards it is as it was."""
    with attending_by(model, NAME):
        yield


def attend_and_evict(
    batch: Batch, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    """One layer's attention output (R, m, H·G, D). This layer has evicted, or evicts with all others after the pass."""
    if batch.layer_batch is not None:
        output = batch.layer_batch.attend(query, keys, values, scaling, softcap)
        if batch.layer_batch.early:
            select_early(LayerPass.of(batch, layer, query, keys, values, scaling, softcap), batch.layer_batch)
        return output
    work = LayerPass.of(batch, layer, query, keys, values, scaling, softcap)
    work, preselected = evict_first(work)
    output = batch.attend(work)
    evict(work, preselected)
    return output


def evict_first(work: LayerPass) -> tuple[LayerPass, Preselected]:
    """Order "evict, append, attend": policies that want it select among the old slots, and attention sees only those.

    Returns the pass with everything evicted hidden, and each such group's selection for `evict`.
    """
    batch, preselected = work.batch, {}
    for group in batch.groups:
        if batch.reads_token_fed_whole(group) and any(batch.over(group)):
            is_nan = work.query[group.rows].isnan().flatten(1).any(-1) | work.keys[group.rows].isnan().flatten(1).any(
                -1
            )
            work, preselected[group.number] = _hide_from_eviction_step(work, group)
            batch.statistics.called(group.rows, batch.over(group), is_nan)
    hidden = torch.zeros_like(work.positions, dtype=torch.bool)
    any_selected = False
    for group in batch.groups:
        over = batch.over(group)
        if not batch.evicts_first(group) or not any(over):
            continue
        view = work.view_before(group, _stored(work, group))
        kept, is_nan = group.policy.keep(view)
        batch.statistics.called(group.rows, over, is_nan)
        arriving = work.positions[group.rows, :, work.layer.fill :] >= 0
        refused = arriving & ~group.policy.admits(view).unsqueeze(-1)
        preselected[group.number] = torch.cat([kept, arriving & ~refused], -1)
        unseen = torch.zeros_like(refused) if group.policy.self_visible else refused  # padding goes on seeing itself
        hidden[group.rows] = torch.cat([~kept, unseen], -1)
        any_selected = True
    return (work.hiding(hidden.unsqueeze(2)) if any_selected else work), preselected


def _hide_from_eviction_step(work: LayerPass, group: Group) -> tuple[LayerPass, Tensor]:
    """A token-fed prompt in one pass (policies.md 3.14): each token is hidden from the step on at which it is evicted.

    Also returns the survivors (r, H, m) of the group's prompts.
    """
    length = work.batch.feed.width
    hidden = work.positions.new_zeros(*work.positions.shape[:2], length, length, dtype=torch.bool)
    survives = work.positions >= 0
    for width, rows in _alike(work, group):
        text = slice(length - width, None)
        evicted_at = group.policy.eviction_steps(work.prompt_view(group, rows, text))
        step = torch.arange(width, device=evicted_at.device)
        index = torch.tensor(rows, device=evicted_at.device)
        hidden[index, :, text, text] = step[:, None] >= evicted_at[:, :, None, :]
        survives[index, :, text] = evicted_at > step[-1]
    return work.hiding(hidden), survives[group.rows]


def _alike(work: LayerPass, group: Group) -> Iterator[tuple[int, list[int]]]:
    """Tokens of a prompt, and rows of the group that have as many and the same budget, as many as may be shown at once.

    The steps of their evictions are simulated together: one row's are a few hundred operations on a few numbers each.
    """
    rows_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, budget in enumerate(group.budgets, start=group.rows.start):
        rows_of[work.batch.feed.widths[row], budget].append(row)
    for (width, _), rows in rows_of.items():
        at_once = max(1, QUERIES_AT_ONCE // (width * work.query.shape[1]))
        yield from ((width, rows[start : start + at_once]) for start in range(0, len(rows), at_once))


def evict(work: LayerPass, preselected: Preselected) -> None:
    """Order "append, attend, evict" (policies.md 1.2): update states, select, and store what stays, in this layer."""
    batch, layer = work.batch, work.layer
    batch.statistics.attended(work.seen())
    for watcher in batch.watchers:
        watcher.attended(work)
    kept = None if batch.appends else work.positions >= 0
    states: dict[StateKey, Tensor] = {}
    for group in batch.groups:
        selection = _selected(work, group, preselected)
        states |= {key: selection.states[key.name] for key in _keys(group) if selection.states}
        if selection.kept is not None:
            assert kept is not None
            kept[group.rows] = selection.kept
    for fork in batch.forks:
        fork.evict(work, states)
    if not batch.keeps_chunk:
        layer.release()
        return
    if kept is None:
        layer.append(batch.feed.positions, states)
    elif batch.shrinks:
        all_rows = torch.arange(len(batch.rows), device=batch.device)
        batch.statistics.selected(kept.sum(-1), batch.targets_tensor)
        layer.copy_survivors(layer, all_rows, kept, max(batch.targets), work.positions, states)
    else:
        if batch.uniform:
            batch.statistics.selected(kept.sum(-1), batch.targets_tensor)
        if batch.counts_layers:
            batch.count_kept(kept, work.positions)
        layer.evict(kept, batch.targets_tensor, max(batch.targets), batch.feed.positions, states)
    batch.statistics.evicted(layer.held())
    for watcher in batch.watchers:
        watcher.evicted(work)
    layer.release()


def select_early(work: LayerPass, layer_batch: LayerBatch) -> None:
    """Selections of the policies that look at the layer itself: made here, stored when all layers evict together."""
    kept = work.positions >= 0
    for group in work.batch.groups:
        if group.number in layer_batch.early:
            selection = _selected(work, group, {})
            layer_batch.early[group.number].append(selection)
            if selection.kept is not None:
                kept[group.rows] = selection.kept
    if work.batch.counts_layers:
        work.batch.count_kept(kept, work.positions)


def _selected(work: LayerPass, group: Group, preselected: Preselected) -> Selection:
    """One group's selection in this layer. What its policy carries per row is stored at once."""
    selection = select(work.batch, group, partial(view_after, work), preselected=preselected.get(group.number))
    if selection.states:
        rows = len(group.budgets)
        for name in group.policy.carried:
            new = selection.states[name]
            work.layer.room_to_carry((name, group.number), rows, new).copy_(new)
    return selection


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
    """What the group's policy carries per row; empty before the first chunk."""
    keys = {name: (name, group.number) for name in group.policy.carried}
    return {name: work.layer.carried[key] for name, key in keys.items() if key in work.layer.carried}


def _with_room(old: Tensor, work: LayerPass) -> Tensor:
    """The same with zeros for the chunk, (r, H, fill + m, …)."""
    new = old.new_zeros(*old.shape[:2], work.batch.feed.width, *old.shape[3:])
    return torch.cat([old, new], 2)
