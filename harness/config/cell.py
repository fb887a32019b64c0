"""Cells: one model, policy, budget, prompt regime, task and seed, parsed from a configuration.

A budget has two names: `Cell.budget` is what the user wrote (`harness.config.budget.Budget`); the slots that it grants
one sample are a plain number, ``slots``, which enters the engine as `Request.budget`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import tasks
from harness.config import identity
from harness.config.budget import FULL, Budget, scaled_budget
from harness.config.model import ModelSpec
from harness.config.policy_config import policy_from
from harness.config.settings import Folder, Named
from harness.config.type_check import check_names, check_settings, check_value
from harness.engine.requests import SIMULATED, EngineError, Prompting, natural_regime, reason_against
from harness.errors import CellError, UserError
from policies import Policy, PolicyError
from tasks.base import Task, TaskError
from tasks.sampled import Sampling, with_sampling

# Errors of the user's input: they end in one sentence and exit code 2, never in a traceback.
USER_ERRORS = (UserError, EngineError, PolicyError, TaskError)


@contextmanager
def as_user_errors() -> Iterator[None]:
    """Raise all of them as `UserError`, for callers from Python: one family to catch. Also a decorator."""
    try:
        yield
    except UserError:
        raise
    except USER_ERRORS as error:
        raise UserError(str(error)) from error


SYNTHETIC = " (synthetic rows)"  # in the name of a task that ran on fixtures: a test of the path, never a result


@dataclass(frozen=True)
class Cell:
    """One point of a sweep. ``seed`` drives the task's generator. ``configuration``: composed.

    ``limit``: how many samples are wanted of it, the first ones of its task; None = all. More samples of a cell are
    more rows of the same cell: the number is no part of its identity, and two cells that differ in it are equal.
    """

    model: ModelSpec
    policy: Policy
    budget: Budget
    prompting: Prompting
    task: Task
    seed: int
    configuration: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    limit: int | None = field(default=None, compare=False)

    @staticmethod
    def parse(config: Mapping[str, Any]) -> Cell:
        """From a composed configuration (plain containers).

        Raises `CellError` for parts that do not go together, and the other errors of `harness.config.cell.USER_ERRORS`.
        """
        task = with_sampling(task_from(config["task"]), _sampling(config["sampling"]))
        task.revision()  # missing data is named before the model is looked for
        model = ModelSpec.parse(config["model"])
        policy = policy_from(config["policy"], model, config["trusted"])
        written = FULL if policy.is_dense else Budget.parse(config["budget"], config["budget_of"])
        budget = scaled_budget(written, config["budget_slots"], task.label, _is_synthetic(task))
        if budget.slots is not None and (reason := reason_against_budget(policy, budget.slots)):
            raise CellError(reason)
        block_size, split = config["block_size"], config["prompt_split"]
        if config["prompt"] == "auto":
            prompting = natural_regime(policy, block_size, split)
        else:
            prompting = Prompting(config["prompt"], block_size, split)
        if reason := reason_against(policy, prompting):
            raise CellError(reason)
        if prompting.split == "context" and not task.asks_last:
            raise CellError(
                f"Task '{task.label}' has no question that could be held back, so prompt_split=context means nothing "
                "for it: use prompt_split=whole, or a task that asks after a context (needle, ruler, longbench, …)."
            )
        if task.mode == "perplexity" and prompting.regime in ("one_shot", SIMULATED) and not policy.is_dense:
            raise CellError(
                f"Task '{task.label}' predicts the prompt itself, and prompt={prompting.regime} computes it before "
                "anything is evicted, so its perplexity would be dense whatever the policy: use prompt=blocked or "
                "prompt=token_fed."
            )
        return Cell(
            model=model,
            policy=policy,
            budget=budget,
            prompting=prompting,
            task=task,
            seed=config["seed"],
            configuration=config,
            limit=config["limit"],
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Exactly the fields that change outputs; device, batch width and folders are left out.

        Code is included: when the engine, a part of this policy or code of the task changes, the cell is another one.
        """
        return identity.cell_identity(self)

    @cached_property
    def code(self) -> dict[str, dict[str, str]]:
        """The source files behind the identity and the hash of the code in each, by group."""
        return identity.cell_code(self)

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """The task's version and the hashes of its data, prompts and metrics."""
        return {"name": self.task.name, "version": self.task.version, "revision": dict(self.task.revision())}

    @cached_property
    def id(self) -> str:
        """16 hex digits, the same on every machine."""
        return identity.hash_data(self.identity)

    def description(self) -> dict[str, Any]:
        """What the store keeps of a cell besides provenance: labels, identity, source files, configuration."""
        own = {"config": self.identity, "sources": self.code, "resolved": dict(self.configuration)}
        return {**self.labels(), **own}

    def labels(self) -> dict[str, Any]:
        """The columns of the ``cells`` table that reports group by (docs/design/rows.md)."""
        return {
            "cell_id": self.id,
            "model": self.model.name,
            "policy": self.policy.name,
            "budget": self.budget.label,
            "prompt": self.prompting.label,
            "block_size": self.prompting.block_size if self.prompting.has_blocks else 0,
            "task": self.task.label + SYNTHETIC * _is_synthetic(self.task),
            "dtype": self.model.dtype,
            "seed": self.seed,
        }


def task_from(config: Mapping[str, Any]) -> Task:
    """The task that a configuration describes. Raises the errors of `USER_ERRORS`; its data are read later."""
    check_settings(Named, config, "task")
    kind = tasks.task_class(config["name"])
    check_settings(kind, config, "task")
    for name in kind.path_fields:
        if config.get(name) is not None:
            check_value(Folder, config[name], f"task.{name}")
    return tasks.build(**config)


def _sampling(config: Mapping[str, Any]) -> Sampling:
    check_settings(Sampling, config, "sampling")
    check_names(config, [each.name for each in fields(Sampling)], "The group sampling")
    return Sampling(**config)


def _is_synthetic(task: Task) -> bool:
    return getattr(task, "data", "") == "fixture"


def greatest(limits: Iterable[int | None]) -> int | None:
    """The greatest number of samples; None, which is all of them, is greater than any. ``limits`` must not be empty."""
    found = list(limits)
    return None if None in found else max(each for each in found if each is not None)


def reason_against_budget(policy: Policy, slots: int) -> str:
    """Why the policy cannot work with so many slots per layer and KV head, with the remedy; empty where it can."""
    try:
        policy.check_budget(slots)
    except PolicyError as error:
        return str(error)
    return ""
