"""Which rows read the same prompt, and how far: pure planning, before anything is computed.

Until its first eviction a row is dense, whatever its policy and budget. Rows with the same prompt therefore share one
dense run up to that pass, the evicting pass itself included: its attention still sees everything, and a layer that
evicts after attention changes nothing that the layers above it see in that pass (policies.md 6.3).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
from harness.engine.requests.request import SIMULATED, Prompting, Request, neighbours_by_policy
from policies import DENSE, Policy


@dataclass(frozen=True)
class Branch:
    """Rows that leave a shared run together and go on in lockstep."""

    rows: tuple[int, ...]  # of the caller's, equal policies neighbours
    prompts: tuple[int, ...]  # the shared prompt of each
    after: int  # the last pass that is shared


@dataclass(frozen=True)
class PrefixGroup:
    """Prompts that are read once, and everyone who reads them. ``prompts``: one of the caller's rows for each."""

    prompts: tuple[int, ...]
    branches: tuple[Branch, ...]

    def chunks(self, rows: Sequence[Request], prompting: Prompting) -> list[list[Chunk]]:
        """Per prompt, the passes that somebody shares."""
        last = [0] * len(self.prompts)
        for branch in self.branches:
            for prompt in branch.prompts:
                last[prompt] = max(last[prompt], branch.after)
        return [rows[index].chunks(prompting)[: last[number] + 1] for number, index in enumerate(self.prompts)]


@dataclass(frozen=True)
class SharingPlan:
    """All rows of a call: in families, or in cohorts that share no prompt work."""

    families: tuple[PrefixGroup, ...]
    alone: tuple[tuple[int, ...], ...]

    @staticmethod
    def by_policy(rows: Sequence[Request]) -> SharingPlan:
        """Nobody shares anything."""
        alone: dict[str, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            alone[row.policy.rope].append(index)
        return SharingPlan((), tuple(_by_policy(rows, indices) for indices in alone.values()))


def forks_after(row: Request, prompting: Prompting) -> int | None:
    """The last pass over the prompt in which this row is still dense; None if it never is, or nobody can say."""
    policy, plan = row.policy, row.chunks(prompting)
    last = len(plan) - 1
    if prompting.regime == SIMULATED or (prompting.regime == "token_fed" and policy.foresees):
        return None
    if policy.is_dense or policy.schedule.prompt == "never":
        return last
    if not policy.uniform:  # such policies are asked after every chunk, whatever the budget
        return 0 if last == 0 else None
    evicting = next((number for number, (_, stop) in enumerate(plan) if stop > row.budget), None)
    if evicting is None:
        return last
    start, stop = plan[evicting]
    return evicting - 1 if policy.schedule.evict_first and evicting and stop - start == 1 else evicting


def plan_sharing(rows: Sequence[Request], prompting: Prompting) -> SharingPlan:
    """Families of rows that have a prompt in common, in the caller's order; everyone else alone."""
    leaving = [forks_after(row, prompting) for row in rows]
    keys = [_prompt(row, prompting) for row in rows]
    readers = Counter(key for key, after in zip(keys, leaving, strict=True) if after is not None)
    families: dict[Any, dict[Any, int]] = defaultdict(dict)  # by what one run can hold: prompt to a row that reads it
    members: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    alone: dict[Any, list[int]] = defaultdict(list)
    for index, (row, key, after) in enumerate(zip(rows, keys, leaving, strict=True)):
        if after is None or readers[key] < 2:
            alone[row.policy.rope].append(index)
            continue
        one_run = (row.policy.rope, row.policy.logit_scale)
        families[one_run].setdefault(key, index)
        size = 0 if row.policy.is_dense else (row.budget - 1).bit_length()
        members[one_run][after, row.policy.uniform, size].append(index)
    return SharingPlan(
        tuple(_prefix_group(rows, keys, families[run], members[run]) for run in families),
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
    """So that equal policies are neighbours."""
    return tuple(indices[place] for place in neighbours_by_policy([rows[index] for index in indices]))


# A shared run: prompts read once, densely, with the state of every policy that waits to leave it.


@dataclass(frozen=True)
class Fork:
    """A cohort whose rows go on by themselves after a pass: ``prompts`` names the shared prompt of each row."""

    cohort: Batch
    prompts: tuple[int, ...]
    source: Tensor  # (R,) the same on the device
    followed: dict[
        int, tuple[int, ...]
    ]  # by group of the cohort: for each row the trunk's group that carried its state

    def begin(self, trunk: Batch) -> None:
        """Put the cohort where the trunk stands in the middle of a pass, before its first layer settles."""
        cohort, prompts = self.cohort, self.prompts
        feed = trunk.feed.of(prompts)
        cohort.counts = [trunk.counts[prompt] for prompt in prompts]
        cohort.lengths = [trunk.lengths[prompt] - trunk.feed.widths[prompt] for prompt in prompts]
        known = min(cohort.fed.shape[1], trunk.fed.shape[1])
        cohort.fed[:, :known] = trunk.fed[self.source, :known]
        cohort.passes = trunk.passes - 1
        cohort.begin(feed, trunk.phase)

    def settle(self, work: LayerPass, states: dict[StateKey, Tensor]) -> None:
        """One layer: select for every row from the shared slots, and take along what survives.

        ``states``: of the trunk's groups over slots and chunk, this pass included.
        """
        cohort, layer = self.cohort, self.cohort.cache.layers[work.index]
        everyone = slice(0, len(work.cohort.rows))
        shared = work.attention_of(everyone)
        positions = work.positions[self.source]
        kept = positions >= 0
        taken: dict[StateKey, Tensor] = {}
        for group in cohort.groups:
            over = cohort.over(group)
            source, prompts = self.source[group.rows], self.prompts[group.rows]
            state = {
                name: self._gathered({key.group: tensor for key, tensor in states.items() if key.name == name}, group)
                for name in group.policy.state
            }
            taken |= {
                StateKey(name, group.rows, kind, group.number): state[name] for name, kind in group.policy.state.items()
            }
            for name in group.policy.carried:
                by_group = {number: each for (known, number), each in work.layer.carried.items() if known == name}
                state[name] = layer.carried[name, group.number] = self._gathered(by_group, group)
            if any(over):
                view = cohort.view(
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
                cohort.tally.called(group.rows, over, is_nan)
        cohort.tally.attended(work.seen()[self.source])
        if cohort.uniform:
            cohort.tally.selected(kept.sum(-1), cohort.targets_tensor)
        if cohort.counts_layers:
            cohort.count_kept(kept, positions)
        layer.adopt(work.layer, self.source, kept, max(cohort.targets), positions, taken)
        cohort.tally.settled(layer.held())

    def _gathered(self, by_group: dict[int, Tensor], group: Group) -> Tensor:
        """(r, …): each row's state from the trunk's group that carried it."""
        rows = zip(self.followed[group.number], self.prompts[group.rows], strict=True)
        return torch.stack([by_group[number][prompt] for number, prompt in rows])


def _picked(shared: Tensor, prompts: tuple[int, ...], source: Tensor) -> Tensor:
    """``shared[source]``, without a copy where every shared row is taken once, in order, or where there is only one."""
    if len(shared) == 1:
        return shared.expand(len(source), *shared.shape[1:])
    return shared if prompts == tuple(range(len(shared))) else shared[source]


class PrefixBatch(Batch):
    """Dense rows, one per prompt. Beside them it carries, without evicting, the state of every policy that has one."""

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
        self.departures: dict[int, list[Fork]] = {}
        self._followers: dict[Any, Group] = {}

    def _capacity(self) -> int:
        """Nobody attends to the chunk of the last pass again, so it is never stored."""
        longest = max(map(len, self.plans))
        return max(plan[-1][0] if len(plan) == longest else plan[-1][1] for plan in self.plans)

    def expect(self, cohort: Batch, prompts: tuple[int, ...], after: int) -> None:
        """Let a cohort leave after a pass. Called for all before the first pass."""
        followed = {
            group.number: tuple(self._follower(group.policy, budget).number for budget in group.budgets)
            for group in cohort.groups
            if group.policy.is_stateful
        }
        source = torch.tensor(prompts, device=self.device)
        self.departures.setdefault(after, []).append(Fork(cohort, prompts, source, followed))

    def begin(self, feed: Feed, phase: Phase) -> None:
        """Also for the cohorts that leave after this pass."""
        super().begin(feed, phase)
        for leaving in self.leaving:
            leaving.begin(self)

    @property
    def prompt_passes(self) -> list[int]:
        """By row: passes until its prompt is read, whether or not the shared run goes so far."""
        return [len(plan) for plan in self.whole_plans]

    @property
    def leaving(self) -> Sequence[Fork]:
        """Cohorts that leave after the pass at hand."""
        return self.departures.get(self.passes - 1, ())

    @property
    def folds(self) -> bool:
        """Never: rows leave layer by layer."""
        return False

    @property
    def keeps_chunk(self) -> bool:
        """Whether a later pass will attend to the chunk at hand."""
        return self.passes < max(map(len, self.plans))

    def aboard(self) -> Iterator[tuple[Batch, tuple[int, ...]]]:
        """Cohorts that take part in the pass at hand, with their rows' prompts."""
        for after, leaving in self.departures.items():
            if after >= self.passes - 1:
                yield from ((each.cohort, each.prompts) for each in leaving)

    def _follower(self, policy: Policy, budget: int) -> Group:
        """The group that carries a policy's state under this budget: one for all that carry the same numbers."""
        key = (_carrier(policy), budget)
        if key not in self._followers:
            everyone = len(self.rows)
            follower = Group(len(self.groups), policy, slice(0, everyone), (budget,) * everyone, only_follows=True)
            self._followers[key] = follower
            self.groups = (*self.groups, follower)
        return self._followers[key]


def _carrier(policy: Policy) -> object:
    """What decides how a state changes: the scorer alone, unless a class of its own may do more."""
    return policy.scorer if type(policy) is Policy else policy
