"""After attention in one layer: statistics, scores, selection, and the chunk's survivors take their slots."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.engine.attention import column_sums
from harness.engine.cache import SlotLayer
from harness.engine.cohort import Cohort, Group
from policies import CacheView


def settle(
    cohort: Cohort,
    layer: SlotLayer,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scaling: float,
    softcap: float | None,
) -> None:
    """Order "append, attend, evict" (policies.md 1.2). Shapes as in `attend`; ``keys`` hold slots and chunk."""
    heads, fill = keys.shape[1], layer.fill
    chunk = cohort.feed.positions.unsqueeze(1).expand(-1, heads, -1)
    before = layer.positions[..., :fill]
    cohort.tally.attended((before >= 0).sum(-1), cohort.feed.valid.sum(-1))

    positions = torch.cat([before, chunk], dim=-1)  # (R, H, fill + m) int32
    kept = None if cohort.appends else positions >= 0
    states: list[tuple[slice, Tensor, Tensor]] = []
    for index, group in enumerate(cohort.groups):
        over = cohort.over(group)
        if not any(over) and not group.policy.has_state:
            continue
        view = _view(cohort, layer, index, group, query, keys, values, positions, scaling, softcap)
        if group.policy.has_state:
            state = group.policy.update(view)
            view = CacheView(**{**vars(view), "state": state})
            storage = layer.states[index]
            storage[..., :fill] = state[..., :fill]
            states.append((group.rows, storage, state[..., fill:]))
        if any(over):
            assert kept is not None
            choice, is_nan = group.policy.keep(view)
            cohort.tally.called(group.rows, over, is_nan)
            kept[group.rows] = choice

    if kept is None:
        layer.append(cohort.feed.positions, [(storage, new) for _, storage, new in states])
    else:
        cohort.tally.selected(kept, cohort.targets_tensor)
        layer.absorb(kept, cohort.targets_tensor, max(cohort.targets), cohort.feed.positions, states)
    cohort.tally.settled(layer)


def _view(
    cohort: Cohort,
    layer: SlotLayer,
    index: int,
    group: Group,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    scaling: float,
    softcap: float | None,
) -> CacheView:
    """What this group's policy is shown; attention is computed for its rows only, and only as many as it asked for."""
    rows, policy = group.rows, group.policy
    sums = None
    if policy.rows != 0:
        sums = column_sums(
            query[rows],
            keys[rows],
            cohort.visible[rows],
            cohort.feed.valid[rows],
            policy.rows,
            scaling,
            softcap,
        )
    state = None
    if policy.has_state:
        here = positions[rows]
        stored = layer.states.setdefault(
            index,
            torch.zeros(*here.shape[:2], layer.get_max_length(), dtype=torch.float32, device=keys.device),
        )
        state = torch.cat([stored[..., : layer.fill], here.new_zeros(here[..., layer.fill :].shape).float()], -1)
    return CacheView(
        keys=keys[rows],
        values=values[rows],
        positions=positions[rows],
        column_sums=sums,
        state=state,
        counts=cohort.arrived[rows],
        lengths=tuple(cohort.lengths[rows]),
        budgets=group.budgets,
    )
