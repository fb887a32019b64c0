"""A cell: model × policy × budget × prompt regime × task, and the one function that says what it is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tasks
from harness import engine, fingerprint
from harness.budget import FULL, Budget
from harness.engine import Prompting
from harness.engine.support import natural_regime, reason_against
from harness.errors import CellError
from harness.models import ModelSpec
from harness.policy_config import policy_from
from policies import CacheView, Policy, PolicyError
from policies.death_times import death_times
from policies.rounding import largest_remainder
from policies.selection import keep_best
from tasks.base import Task

EVERY_POLICY = (Policy, CacheView, keep_best, largest_remainder, death_times)  # code that all of them may pass through
IDENTITY_FORMAT = 1  # raised whenever the fields below change meaning


@dataclass(frozen=True)
class Cell:
    """One point of a sweep. ``seed`` drives the task's generator; decoding is greedy."""

    model: ModelSpec
    policy: Policy
    budget: Budget
    prompting: Prompting
    task: Task
    seed: int

    @staticmethod
    def parse(config: Mapping[str, Any]) -> Cell:
        """From a composed configuration (plain containers).

        Raises `CellError` for parts that do not go together, and the other errors of `harness.errors.MENDABLE`.
        """
        model = ModelSpec.parse(config["model"])
        policy = policy_from(config["policy"], model, config["trusted"])
        budget = FULL if policy.is_dense else Budget.parse(config["budget"], config["budget_of"])
        if budget.slots is not None and (reason := reason_against_budget(policy, budget.slots)):
            raise CellError(reason)
        block_size = config["block_size"]
        automatic = config["prompt"] == "auto"
        prompting = natural_regime(policy, block_size) if automatic else Prompting(config["prompt"], block_size)
        if reason := reason_against(policy, prompting):
            raise CellError(reason)
        task_config = dict(config["task"])
        task = tasks.build(task_config.pop("name"), **task_config)
        if task.mode == "perplexity" and prompting.regime == "one_shot" and not policy.is_dense:
            raise CellError(
                f"Task '{task.name}' predicts the prompt itself, and prompt=one_shot evicts only after the prompt, so "
                "its perplexity would be dense whatever the policy: use prompt=blocked or prompt=token_fed."
            )
        return Cell(
            model=model,
            policy=policy,
            budget=budget,
            prompting=prompting,
            task=task,
            seed=config["seed"],
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Exactly the fields that change outputs; device, batch width and folders are left out.

        Code is part of it: when the engine, a part of this policy or the task's module changes, the cell is another.
        """
        blocked = self.prompting.regime == "blocked"
        return {
            "format": IDENTITY_FORMAT,
            "model": self.model.identity(),
            "policy": {name: part for name, part in _described(self.policy).items() if name != "name"},
            "budget": dataclasses.asdict(self.budget),
            "prompt": {"regime": self.prompting.regime}
            | ({"block_size": self.prompting.block_size} if blocked else {}),
            "task": {"name": self.task.name, "version": self.task.version, **dataclasses.asdict(self.task)},
            "code": {
                "engine": fingerprint.of_package(engine),
                "policy": fingerprint.of_sources(*EVERY_POLICY, *_parts(self.policy)),
                "task": fingerprint.of_sources(type(self.task)),
            },
        }

    @cached_property
    def id(self) -> str:
        """16 hex digits, the same on every machine."""
        return fingerprint.of_data(self.identity)

    def labels(self) -> dict[str, Any]:
        """The columns of the ``cells`` table that people group by (docs/design/rows.md)."""
        return {
            "cell_id": self.id,
            "model": self.model.name,
            "policy": self.policy.name,
            "budget": self.budget.label,
            "prompt": self.prompting.regime,
            "block_size": self.prompting.block_size if self.prompting.regime == "blocked" else 0,
            "task": self.task.name,
            "dtype": self.model.dtype,
            "seed": self.seed,
        }


def reason_against_budget(policy: Policy, slots: int) -> str:
    """Why the policy cannot work in so many slots, as a sentence with the remedy; empty where it can."""
    try:
        policy.check_budget(slots)
    except PolicyError as error:
        return str(error)
    return ""


def _described(part: Any) -> dict[str, Any]:
    """A frozen dataclass as plain data, the classes of its parts included."""
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    plain = {name: _described(v) if dataclasses.is_dataclass(v) else v for name, v in fields.items()}
    return {"class": type(part).__name__, **plain}


def _parts(part: Any) -> list[type]:
    """The classes of a dataclass and of all parts within it: the code that decides what it does."""
    within = [getattr(part, field.name) for field in dataclasses.fields(part)]
    return [type(part), *(kind for inner in within if dataclasses.is_dataclass(inner) for kind in _parts(inner))]
