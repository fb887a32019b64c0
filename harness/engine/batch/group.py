"""A group: neighbouring rows of a batch under one policy, and what that policy decides about a chunk."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from harness.engine.requests import Request
from policies import CacheView, Policy

if TYPE_CHECKING:
    from harness.engine.batch.batch import Batch

Phase = Literal["prompt", "decode"]
Chunk = tuple[int, int]


@dataclass(frozen=True)
class Group:
    """Neighbouring rows under one policy: a slice, so that statistics are computed on views and never gathered."""

    number: int  # in the batch
    policy: Policy
    rows: slice
    budgets: tuple[int, ...]
    state_only: bool = False  # carries the policy's state through a shared prompt, and never evicts

    def evicts(self, phase: Phase) -> bool:
        """Whether this group's schedule evicts after a chunk of this phase."""
        if self.policy.is_dense or self.state_only:
            return False
        schedule = self.policy.schedule
        return schedule.prompt != "never" if phase == "prompt" else schedule.decode != "never"

    def is_stateful(self, phase: Phase) -> bool:
        """Whether the policy's state must follow each chunk: until nothing is evicted any more."""
        return self.policy.is_stateful and (phase == "prompt" or self.evicts(phase))

    def after(self, rows: Sequence[Request], fed: Sequence[int]) -> Group:
        """The group with the budgets of its ``rows`` once so many tokens have been fed."""
        return replace(self, budgets=tuple(row.budget_at(tokens) for row, tokens in zip(rows, fed, strict=True)))

    def limits(self, phase: Phase, held: Sequence[int]) -> list[int]:
        """By row, the slots that may stay of those ``held`` with the chunk: all of them until an eviction is due."""
        if not self.evicts(phase):
            return list(held)
        slack = self.policy.slack if phase == "decode" else 0
        return [budget if slots > budget + slack else slots for budget, slots in zip(self.budgets, held, strict=True)]


def groups_of(rows: Sequence[Request]) -> list[Group]:
    """One group for each run of rows with equal policies."""
    groups: list[Group] = []
    start = 0
    for policy, members in itertools.groupby(rows, key=lambda row: row.policy):
        budgets = tuple(row.budget for row in members)
        groups.append(Group(len(groups), policy, slice(start, start + len(budgets)), budgets))
        start += len(budgets)
    return groups


@dataclass(frozen=True)
class Selection:
    """What a policy keeps of a chunk and the slots before it.

    ``kept`` (r, H, fill + m) bool, or None where all stays; ``states``: by name, the policy's updated state, empty
    where it has none or needs it no more.
    """

    kept: Tensor | None
    states: Mapping[str, Tensor]


def select(
    batch: Batch, group: Group, view: Callable[[Group], CacheView], layers: int = 1, preselected: Tensor | None = None
) -> Selection:
    """A group's selection over its ``view``, which shows the group's rows, each in so many ``layers``.

    The view is made only where a state or a selection needs it. ``preselected``: what was selected before attention.
    """
    over = batch.over(group)
    if not any(over) and not group.is_stateful(batch.phase):
        return Selection(None, {})
    seen = view(group)
    states = {name: seen.state[name] for name in (*group.policy.state, *group.policy.carried)}
    if not any(over) or preselected is not None:
        return Selection(preselected if any(over) else None, states)
    kept, is_nan = group.policy.keep(seen)
    batch.statistics.called(group.rows, over, is_nan.view(-1, layers).any(1), layers)
    return Selection(kept, states)
