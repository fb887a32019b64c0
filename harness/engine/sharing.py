"""Which rows read the same prompt, and how far: pure planning, before anything is computed.

Until its first eviction a row is dense, whatever its policy and budget. Rows with the same prompt therefore share one
dense run up to that pass, the evicting pass itself included: its attention still sees everything, and a layer that
evicts after attention changes nothing that the layers above it see in that pass (policies.md 6.3).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.engine.cohort import Chunk
from harness.engine.rows import SIMULATED, Prompting, Row, neighbours_by_policy


@dataclass(frozen=True)
class Branch:
    """Rows that leave a shared run together and go on in lockstep."""

    rows: tuple[int, ...]  # of the caller's, equal policies neighbours
    prompts: tuple[int, ...]  # the shared prompt of each
    after: int  # the last pass that is shared


@dataclass(frozen=True)
class Family:
    """Prompts that are read once, and everyone who reads them. ``prompts``: one of the caller's rows for each."""

    prompts: tuple[int, ...]
    branches: tuple[Branch, ...]

    def chunks(self, rows: Sequence[Row], prompting: Prompting) -> list[list[Chunk]]:
        """Per prompt, the passes that somebody shares."""
        last = [0] * len(self.prompts)
        for branch in self.branches:
            for prompt in branch.prompts:
                last[prompt] = max(last[prompt], branch.after)
        return [rows[index].chunks(prompting)[: last[number] + 1] for number, index in enumerate(self.prompts)]


@dataclass(frozen=True)
class Shared:
    """All rows of a call: in families, or in cohorts that share no prompt work."""

    families: tuple[Family, ...]
    alone: tuple[tuple[int, ...], ...]

    @staticmethod
    def by_policy(rows: Sequence[Row]) -> Shared:
        """Nobody shares anything."""
        alone: dict[str, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            alone[row.policy.rope].append(index)
        return Shared((), tuple(_by_policy(rows, indices) for indices in alone.values()))


def leaves_after(row: Row, prompting: Prompting) -> int | None:
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


def share(rows: Sequence[Row], prompting: Prompting) -> Shared:
    """Families of rows that have a prompt in common, in the caller's order; everyone else alone."""
    leaving = [leaves_after(row, prompting) for row in rows]
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
    return Shared(
        tuple(_family(rows, keys, families[run], members[run]) for run in families),
        tuple(_by_policy(rows, indices) for indices in alone.values()),
    )


def _family(rows: Sequence[Row], keys: Sequence[Any], prompts: dict[Any, int], members: dict[Any, list[int]]) -> Family:
    number = {key: position for position, key in enumerate(prompts)}
    branches = []
    for (after, *_), indices in sorted(members.items()):
        ordered = _by_policy(rows, indices)
        branches.append(Branch(ordered, tuple(number[keys[index]] for index in ordered), after))
    return Family(tuple(prompts.values()), tuple(branches))


def _prompt(row: Row, prompting: Prompting) -> Any:
    return (row.policy.rope, row.policy.logit_scale, tuple(row.tokens), tuple(row.chunks(prompting)))


def _by_policy(rows: Sequence[Row], indices: Sequence[int]) -> tuple[int, ...]:
    """So that equal policies are neighbours."""
    return tuple(indices[place] for place in neighbours_by_policy([rows[index] for index in indices]))
