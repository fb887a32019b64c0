"""What a cell is: the one function that names it, by exactly the fields that change its outputs.

In: the policy with all its settings, the budget, the regime, the task's protocol and data, the model's content or
revision, and the code between a configuration and a row. Out: device, batch width, launcher, folders, ``limit``, names
and package versions; they are recorded beside (`harness.origin.provenance`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.origin import fingerprint, session_code, sources

if TYPE_CHECKING:
    from harness.cells import Cell
    from policies import Policy

FORMAT = 3  # raised whenever the fields below change meaning

# Every cell passes through these, whatever its policy and task are.
ENGINE = (
    "samples.asking",
    "settings.budget",
    "samples.continuations",
    "models",
    "samples.prompts",
    "samples.rows",
    "samples.stopping",
    "samples.wording",
)
EVERY_POLICY = frozenset(
    f"policies.{name}"
    for name in ("allocator", "death_times", "parts", "policy", "rounding", "scorer", "selection", "shape", "view")
)


def identity(cell: Cell) -> dict[str, Any]:
    """Plain data, the same on every machine. Code enters by group; `code` says which files these are."""
    prompting = cell.prompting
    protocol = {name: value for name, value in dataclasses.asdict(cell.task).items() if name not in cell.task.places}
    block = {"block_size": prompting.block_size} if prompting.has_blocks else {}
    return {
        "format": FORMAT,
        "model": cell.model.identity(),
        "policy": {name: part for name, part in described(cell.policy).items() if name != "name"},
        "budget": dataclasses.asdict(cell.budget),
        "prompt": {"regime": prompting.regime, **block},
        "task": {**cell.protocol, **protocol},
        "code": {group: fingerprint.of_data(files) for group, files in cell.code.items()},
    }


def code(cell: Cell) -> dict[str, sources.Files]:
    """The files that decide the outputs of this cell and the hash of the code in each, by group."""
    kind: Callable[..., object] = type(cell.task)
    return {
        "engine": sources.hashed(_engine()),
        "policy": policy_code(cell.policy),
        "task": sources.hashed(sources.behind(kind)),
    }


@cache
def _engine() -> tuple[Path, ...]:
    """The files that every cell passes through."""
    engine = (sources.ROOT / "harness" / "engine").glob("*.py")
    return (*engine, *sources.of_modules(f"harness.{name}" for name in ENGINE))


def policy_code(policy: Policy) -> sources.Files:
    """The code of a policy and all its parts: of files, and of classes that a notebook or a script defines."""
    parts = _parts(policy)
    files = (file for part in parts for file in sources.behind(part, EVERY_POLICY))
    session = session_code.of_session(parts, EVERY_POLICY)
    return sources.hashed([*sources.of_modules(sorted(EVERY_POLICY)), *files]) | session


def described(part: Any) -> dict[str, Any]:
    """A frozen dataclass as plain data, the classes of its parts included."""
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    plain = {name: described(v) if dataclasses.is_dataclass(v) else v for name, v in fields.items()}
    return {"class": type(part).__name__, **plain}


def _parts(part: Any) -> list[Callable[..., object]]:
    """The classes of a dataclass and of all parts within it: the code that decides what it does."""
    within = [getattr(part, field.name) for field in dataclasses.fields(part)]
    return [type(part), *(kind for inner in within if dataclasses.is_dataclass(inner) for kind in _parts(inner))]
