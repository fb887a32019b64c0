"""Policies that rank no slots: a structure decides by itself what stays in every head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from policies.policy import Policy, Schedule
from policies.scorer import SlotState
from policies.view import CacheView, PolicyError


class Structure(Protocol):
    """A frozen dataclass. As with scorers, the engine owns all tensors; heads may hold different numbers of slots."""

    @property
    def keeps_to_budget(self) -> bool:
        """Whether no head ever persists more than the nominal budget."""
        ...

    @property
    def self_visible(self) -> bool:
        """Whether a token that a head does not admit still attends to itself."""
        ...

    @property
    def state(self) -> Mapping[str, SlotState]:
        """The tensors carried per slot, by name."""
        ...

    def check_budget(self, budget: int) -> None:
        """Raise `PolicyError` where the structure cannot work in so many slots."""
        ...

    def check_schedule(self, schedule: Schedule) -> None:
        """Raise `PolicyError` where the structure is not defined for this order of events."""
        ...

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The state after this chunk, (R, H, N, …) each. Called for every chunk, after attention."""
        ...

    def keep(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """The slots that stay, (R, H, N) bool, and whether a row has a score that is NaN, (R,) bool."""
        ...

    def admits(self, view: CacheView) -> Tensor:
        """(R, H) bool: whether a head admits the single new token. Called before attention."""
        ...


@dataclass(frozen=True)
class StructuralPolicy(Policy):
    """A policy whose ``structure`` replaces scorer, allocator and protection."""

    structure: Structure | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structure is None:
            raise PolicyError(f"Policy '{self.name}' has no structure: set policy.structure.name.")
        for part in ("scorer", "correction", "allocator", "prompt_stage", "token_filter"):
            if getattr(self, part) is not None:
                raise PolicyError(
                    f"Policy '{self.name}' has a structure, which decides alone what stays: remove policy.{part}."
                )
        if self.protect.sinks or self.protect.recent:
            raise PolicyError(
                f"Policy '{self.name}' has a structure, which protects by its own parameters: remove policy.protect."
            )
        self.structure.check_schedule(self.schedule)

    @property
    def is_dense(self) -> bool:
        """Whether nothing is ever evicted."""
        return self.schedule.prompt == "never" and self.schedule.decode == "never"

    @property
    def uniform(self) -> bool:
        """Structures choose the number of slots themselves."""
        return False

    @property
    def keeps_to_budget(self) -> bool:
        """Whether no head ever persists more than the nominal budget."""
        return self._structure.keeps_to_budget

    @property
    def self_visible(self) -> bool:
        """Whether a token that a head does not admit still attends to itself."""
        return self._structure.self_visible

    @property
    def state(self) -> Mapping[str, SlotState]:
        """The tensors carried per slot."""
        return self._structure.state

    def check_budget(self, budget: int) -> None:
        """Raise `PolicyError` where the structure cannot work in so many slots."""
        self._structure.check_budget(budget)

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The structure's state after this chunk."""
        return self._structure.update(view)

    def keep(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """The slots that stay, (R, H, N) bool, and whether a row has a score that is NaN, (R,) bool."""
        return self._structure.keep(view)

    def admits(self, view: CacheView) -> Tensor:
        """(R, H) bool: whether a head admits the single new token. Called before attention."""
        return self._structure.admits(view)

    @property
    def _structure(self) -> Structure:
        assert self.structure is not None
        return self.structure
