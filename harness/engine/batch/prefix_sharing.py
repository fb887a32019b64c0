"""Prefix sharing: rows with the same prompt read it once, in one dense `PrefixBatch`, until each must evict.

Until its first eviction a row is dense, whatever its policy and budget. Rows with the same prompt therefore share one
dense run up to that pass, the evicting pass itself included: its attention still sees everything, and a layer that
evicts after attention changes nothing that the layers above it see in that pass (policies.md 6.3).

`plan_sharing` decides before anything is computed which rows share how much. During the run a `Fork` copies, layer by
layer, what survives in the rows that leave the prefix, into a `Batch` of their own.

Rows that differ only in what follows the prompt (questions about one context, the choices of a question, drawn answers)
share all of it, evictions included: `readers_of_prompts` finds them, and one of them is read for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harness.engine.attention.attention_statistics import ForkedStatistics
from harness.engine.batch.batch import Batch
from harness.engine.batch.feed import Feed
from harness.engine.batch.group import Chunk, Group, Phase
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.cache.slot_layer import StateKey
from harness.engine.requests import SIMULATED, Prompting, Request, neighbours_by_policy
from policies import DENSE, Policy

FEW_SLOTS = 256  # to attend to so many costs less than a pass of their own


@dataclass(frozen=True)
class Branch:
    """Rows that leave a shared run after the same pass and go on in lockstep."""

    rows: tuple[int, ...]  # of the caller's, equal policies neighbours
    prompts: tuple[int, ...]  # the shared prompt of each
    after: int  # the last pass that is shared


@dataclass(frozen=True)
class PrefixGroup:
    """Prompts that are read once, and all rows that read them. ``prompts``: one of the caller's rows for each."""

    prompts: tuple[int, ...]
    branches: tuple[Branch, ...]

    def chunks(self, rows: Sequence[Request], prompting: Prompting) -> list[list[Chunk]]:
        """Per prompt, the passes that at least one row shares."""
        last = [0] * len(self.prompts)
        for branch in self.branches:
            for prompt in branch.prompts:
                last[prompt] = max(last[prompt], branch.after)
        return [rows[index].chunks(prompting)[: last[number] + 1] for number, index in enumerate(self.prompts)]


@dataclass(frozen=True)
class SharingPlan:
    """All rows of a call: in prefix groups, or in batches that share no prompt work."""

    prefix_groups: tuple[PrefixGroup, ...]
    alone: tuple[tuple[int, ...], ...]

    @staticmethod
    def by_policy(rows: Sequence[Request]) -> SharingPlan:
        """No row shares anything."""
        return SharingPlan.apart(rows, lambda row: row.policy.rope)

    @staticmethod
    def apart(rows: Sequence[Request], batch_of: Callable[[Request], Any]) -> SharingPlan:
        """No row shares anything; those for which ``batch_of`` says the same go through the model together."""
        alone: dict[Any, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            alone[batch_of(row)].append(index)
        return SharingPlan((), tuple(_by_policy(rows, indices) for indices in alone.values()))

    def passes(self, of_rows: Sequence[int]) -> int:
        """Forward passes of all batches, where ``of_rows`` says how many each row takes by itself."""
        taken = sum(max(of_rows[index] for index in indices) for indices in self.alone)
        for group in self.prefix_groups:
            taken += max(branch.after for branch in group.branches) + 1
            taken += sum(max(of_rows[index] for index in each.rows) - each.after - 1 for each in group.branches)
        return taken


def last_shared_pass(row: Request, prompting: Prompting) -> int | None:
    """The last pass over the prompt in which this row is still dense; None if it never is, or that is not known."""
    policy, plan = row.policy, row.chunks(prompting)
    last = len(plan) - 1
    if prompting.regime == SIMULATED or (prompting.regime == "token_fed" and policy.attention_free):
        return None
    if policy.is_dense or policy.schedule.prompt == "never":
        return last
    if not policy.uniform:  # such policies select after every chunk, whatever the budget
        return 0 if last == 0 else None
    evicting = next((number for number, (_, stop) in enumerate(plan) if stop > row.budget), None)
    if evicting is None:
        return last
    start, stop = plan[evicting]
    return evicting - 1 if policy.schedule.evict_first and evicting and stop - start == 1 else evicting


def readers_of_prompts(rows: Sequence[Request]) -> list[list[int]]:
    """Rows that hold the same at the end of their prompts, the one with most tokens first.

    The oracle looks at what follows the prompt, so that its rows are read each on its own.
    """
    readers: dict[Any, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        own = index if row.policy.hindsight else None
        readers[tuple(row.tokens), row.policy, row.budget, row.so_far, row.repeat, own].append(index)
    return [sorted(each, key=lambda index: -rows[index].total_tokens) for each in readers.values()]


def plan_sharing(rows: Sequence[Request], prompting: Prompting) -> SharingPlan:
    """Prefix groups of rows that have a prompt in common, in the caller's order; all other rows alone.

    Rows that are fed token by token share nothing where that takes fewer passes: a pass of one token costs about the
    same for one row as for ten.
    """
    shared = _plan_shared(rows, prompting)
    if prompting.regime != "token_fed":
        return shared
    apart = SharingPlan.apart(rows, _fed_together)
    of_rows = [len(row.chunks(prompting)) for row in rows]
    return min(shared, apart, key=lambda plan: plan.passes(of_rows))


def _size(row: Request, at_least: int = 1) -> int:
    """Rows whose budgets are alike, within a factor of two, hold their slots together; dense ones are by themselves.

    Budgets below ``at_least`` slots are alike.
    """
    return 0 if row.policy.is_dense else (max(row.budget, at_least) - 1).bit_length()


def _fed_together(row: Request) -> Any:
    """By what rows that are fed token by token go through the model together."""
    return row.policy.rope, row.policy.uniform, _size(row, FEW_SLOTS)


def _plan_shared(rows: Sequence[Request], prompting: Prompting) -> SharingPlan:
    last_shared = [last_shared_pass(row, prompting) for row in rows]
    keys = [_prompt(row, prompting) for row in rows]
    readers = Counter(key for key, after in zip(keys, last_shared, strict=True) if after is not None)
    prompts: dict[Any, dict[Any, int]] = defaultdict(dict)  # by what one run can hold: prompt to a row that reads it
    members: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    alone: dict[Any, list[int]] = defaultdict(list)
    for index, (row, key, after) in enumerate(zip(rows, keys, last_shared, strict=True)):
        if after is None or readers[key] < 2:
            alone[row.policy.rope].append(index)
            continue
        one_run = (row.policy.rope, row.policy.logit_scale)
        prompts[one_run].setdefault(key, index)
        members[one_run][after, row.policy.uniform, _size(row)].append(index)
    return SharingPlan(
        tuple(_prefix_group(rows, keys, prompts[run], members[run]) for run in prompts),
        tuple(_by_policy(rows, indices) for indices in alone.values()),
    )


def _prefix_group(
    rows: Sequence[Request], keys: Sequence[Any], prompts: dict[Any, int], members: dict[Any, list[int]]
) -> PrefixGroup:
    number = {key: position for position, key in enumerate(prompts)}
    branches = []
    for (after, *_), indices in sorted(members.items()):
        ordered = _by_policy(rows, indices)
        branches.append(Branch(ordered, tuple(number[keys[index]] for index in ordered), after))
    return PrefixGroup(tuple(prompts.values()), tuple(branches))


def _prompt(row: Request, prompting: Prompting) -> Any:
    return (row.policy.rope, row.policy.logit_scale, tuple(row.tokens), tuple(row.chunks(prompting)))


def _by_policy(rows: Sequence[Request], indices: Sequence[int]) -> tuple[int, ...]:
    """The indices in an order in which equal policies are neighbours."""
    return tuple(indices[position] for position in neighbours_by_policy([rows[index] for index in indices]))


class PrefixBatch(Batch):
    """Dense rows, one per prompt. It also carries, without evicting, the state of every policy that will fork off."""

    def __init__(
        self,
        prompts: Sequence[Request],
        chunks: Sequence[Sequence[tuple[int, int]]],
        prompting: Prompting,
        layers: int,
        device: torch.device,
    ) -> None:
        first = prompts[0].policy
        dense = replace(DENSE, rope=first.rope, logit_scale=first.logit_scale)
        self.plans = chunks
        self.whole_plans = [row.chunks(prompting) for row in prompts]
        super().__init__([replace(row, policy=dense, budget=0) for row in prompts], prompting, layers, device, chunks)
        self.forks_after: dict[int, list[Fork]] = {}  # by number of the last shared pass
        self._state_groups: dict[Any, Group] = {}

    def _capacity(self) -> int:
        """The chunk of the last pass is never attended to again, so it needs no slots."""
        longest = max(map(len, self.plans))
        return max(plan[-1][0] if len(plan) == longest else plan[-1][1] for plan in self.plans)

    def add_fork(self, batch: Batch, prompts: tuple[int, ...], after: int) -> None:
        """Let the rows of ``batch`` fork off after this pass. To be called for all forks before the first pass."""
        state_groups = {
            group.number: tuple(self._state_group(group.policy, budget).number for budget in group.budgets)
            for group in batch.groups
            if group.policy.is_stateful
        }
        source = torch.tensor(prompts, device=self.device)
        self.forks_after.setdefault(after, []).append(Fork(batch, prompts, source, state_groups))

    def begin(self, feed: Feed, phase: Phase) -> None:
        """Begin a pass, also in the batches that fork off after it."""
        super().begin(feed, phase)
        for fork in self.forks:
            fork.begin(self)

    @property
    def prompt_passes(self) -> list[int]:
        """By row: passes until its prompt is read, whether or not the shared run goes so far."""
        return [len(plan) for plan in self.whole_plans]

    @property
    def forks(self) -> Sequence[Fork]:
        """Forks that leave after the current pass."""
        return self.forks_after.get(self.passes - 1, ())

    @property
    def defers_eviction(self) -> bool:
        """Never: rows fork off layer by layer."""
        return False

    @property
    def keeps_chunk(self) -> bool:
        """Whether a later pass will attend to the current chunk."""
        return self.passes < max(map(len, self.plans))

    def sharing_batches(self) -> Iterator[tuple[Batch, tuple[int, ...]]]:
        """Batches that share the current pass, with the prompt of each of their rows."""
        for after, forks in self.forks_after.items():
            if after >= self.passes - 1:
                yield from ((fork.batch, fork.prompts) for fork in forks)

    def _state_group(self, policy: Policy, budget: int) -> Group:
        """The group that carries a policy's state under this budget: one for all whose states are equal."""
        key = _state_key(policy, budget)
        if key not in self._state_groups:
            rows = len(self.rows)
            group = Group(len(self.groups), policy, slice(0, rows), (budget,) * rows, state_only=True)
            self._state_groups[key] = group
            self.groups = (*self.groups, group)
        return self._state_groups[key]


def _state_key(policy: Policy, budget: int) -> object:
    """What decides how a state changes: the scorer and, mostly, the budget; a whole policy of a class of its own."""
    if type(policy) is not Policy:
        return policy, budget
    return policy.scorer, None if getattr(policy.scorer, "same_state_for_all_budgets", False) else budget


@dataclass(frozen=True)
class Fork:
    """A batch whose rows leave a `PrefixBatch` after a pass: ``prompts`` names the shared prompt of each row."""

    batch: Batch
    prompts: tuple[int, ...]
    source: Tensor  # (R,) the same on the device
    state_groups: dict[int, tuple[int, ...]]  # by group of ``batch``: the prefix's group with the state of each row

    def begin(self, prefix: Batch) -> None:
        """Put the batch where the prefix stands in the middle of a pass, before the first layer evicts."""
        batch, prompts = self.batch, self.prompts
        feed = prefix.feed.of(prompts)
        batch.counts = [prefix.counts[prompt] for prompt in prompts]
        batch.lengths = [prefix.lengths[prompt] - prefix.feed.widths[prompt] for prompt in prompts]
        known = min(batch.fed.shape[1], prefix.fed.shape[1])
        batch.fed[:, :known] = prefix.fed[self.source, :known]
        batch.passes = prefix.passes - 1
        batch.begin(feed, prefix.phase)

    def evict(self, work: LayerPass, states: dict[StateKey, Tensor]) -> None:
        """One layer: select for every row among the shared slots, and copy the survivors into the batch's own.

        ``work`` is the prefix's; ``states``: of its groups over slots and chunk, this pass included.
        """
        batch, layer = self.batch, self.batch.cache.layers[work.index]
        shared = work.attention_of(slice(0, len(work.batch.rows)))
        positions = work.positions[self.source]
        kept = positions >= 0
        forked: dict[StateKey, Tensor] = {}
        for group in batch.groups:
            over = batch.over(group)
            source, prompts = self.source[group.rows], self.prompts[group.rows]
            state = {
                name: self._gathered({key.group: tensor for key, tensor in states.items() if key.name == name}, group)
                for name in group.policy.state
            }
            forked |= {
                StateKey(name, group.rows, kind, group.number): state[name] for name, kind in group.policy.state.items()
            }
            for name in group.policy.carried:
                by_group = {number: each for (known, number), each in work.layer.carried.items() if known == name}
                state[name] = self._gathered(by_group, group)
                layer.room_to_carry((name, group.number), len(group.budgets), state[name]).copy_(state[name])
            if any(over):
                view = batch.view(
                    group,
                    work.index,
                    keys=_picked(work.keys, prompts, source),
                    values=_picked(work.values, prompts, source),
                    positions=positions[group.rows],
                    attention=ForkedStatistics(shared, source),
                    state=state,
                    arriving=_picked(work.layer.chunk_keys, prompts, source),
                )
                kept[group.rows], is_nan = group.policy.keep(view)
                batch.statistics.called(group.rows, over, is_nan)
        batch.statistics.attended(work.seen()[self.source])
        if batch.uniform:
            batch.statistics.selected(kept.sum(-1), batch.targets_tensor)
        if batch.counts_layers:
            batch.count_kept(kept, positions)
        layer.copy_survivors(work.layer, self.source, kept, max(batch.targets), positions, forked)
        batch.statistics.evicted(layer.held())

    def _gathered(self, by_group: dict[int, Tensor], group: Group) -> Tensor:
        """(r, …): each row's state from the prefix's group that carried it."""
        rows = zip(self.state_groups[group.number], self.prompts[group.rows], strict=True)
        return torch.stack([by_group[number][prompt] for number, prompt in rows])


def _picked(shared: Tensor, prompts: tuple[int, ...], source: Tensor) -> Tensor:
    """``shared[source]``, without a copy where every shared row is taken once, in order, or where there is only one."""
    if len(shared) == 1:
        return shared.expand(len(source), *shared.shape[1:])
    return shared if prompts == tuple(range(len(shared))) else shared[source]
