"""The type of every setting of conf/config.yaml and of its groups; policies' parts and tasks have theirs themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, doc
from pydantic import StringConstraints

from harness.config.budget import BudgetSlots, ShareOf
from harness.config.type_check import check_names, check_settings
from harness.engine.requests import Regime, Split
from harness.errors import UserError
from policies import nearest

MOST = 2**31 - 1  # of anything that is counted: an index of 32 bits holds it
Count: TypeAlias = Annotated[int, Ge(1), Le(MOST), doc("a whole number, at least 1")]
CountFromZero: TypeAlias = Annotated[int, Ge(0), Le(MOST), doc("a whole number, at least 0")]
Seconds: TypeAlias = Annotated[float, Gt(0), Le(10_000_000)]
Share: TypeAlias = Annotated[float, Ge(0), Le(1_000_000)]  # of processors or GPUs
Folder: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=r"^/*[^/\x00]{1,255}(/+[^/\x00]{1,255})*/*$"),
    doc("a folder, of names of at most 255 characters"),
]
Text: TypeAlias = Annotated[str, StringConstraints(pattern=r"\S"), doc("a text that is not empty")]
FileName: TypeAlias = Annotated[
    int | Annotated[str, StringConstraints(pattern=r"^[^/\\\x00-\x1f]{0,99}[^/\\\x00-\x1f.\s]$")],
    doc("a name of at most 100 characters without slashes, and no folder"),
]
Device: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$"),
    doc("auto, cpu, cuda, or one GPU such as cuda:1"),
]
Seed: TypeAlias = Annotated[int, Ge(0), Le(2**63 - 1)]  # the column of rows holds 64 bits


@dataclass(frozen=True)
class Named:
    """A group of which one is chosen by its name."""

    name: Text


@dataclass(frozen=True)
class EngineSettings:
    """The group ``engine``."""

    compile: Literal["auto", "off", False]  # YAML reads a bare off as false


@dataclass(frozen=True)
class LocalLauncher:
    """``launcher=local``."""

    workers: Count | None
    retries: CountFromZero


@dataclass(frozen=True)
class SlurmLauncher:
    """``launcher=slurm``. ``parameters``: of submitit, which checks them."""

    workers: Count
    cluster: Literal["slurm", "local"]
    parameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class RayLauncher:
    """``launcher=ray``."""

    workers: Count
    address: str | None
    gpus: Share
    cpus: Share
    retries: CountFromZero


@dataclass(frozen=True)
class WandbSettings:
    """``logger=wandb``."""

    mode: Literal["offline", "online"]
    project: str
    entity: str | None
    group: str | None
    tags: tuple[str, ...]
    wait: Seconds


@dataclass(frozen=True)
class Settings:
    """What a composed configuration holds; what each means stands beside it in conf/config.yaml."""

    model: Mapping[str, Any]
    policy: Mapping[str, Any]
    task: Mapping[str, Any]
    launcher: Mapping[str, Any]
    logger: Mapping[str, Any]
    engine: Mapping[str, Any]
    sampling: Mapping[str, Any]
    name: FileName
    summary: bool
    budget: int | float | str
    budget_slots: BudgetSlots
    budget_of: ShareOf
    prompt: Literal[Regime, "auto"]
    block_size: Count
    prompt_split: Split
    seed: Seed
    limit: Count | None
    baseline_limit: Count | None
    data: Folder
    max_length: Count | None
    references: tuple[str, ...]
    trusted: tuple[str, ...]
    device: Device
    deterministic: bool
    batch_rows: Count | None
    shard: str | None
    lease: Seconds
    results_dir: Folder


GROUPS: Mapping[str, Mapping[str, type]] = {
    "launcher": {"local": LocalLauncher, "slurm": SlurmLauncher, "ray": RayLauncher},
    "logger": {"wandb": WandbSettings},
}


def check_config(config: Mapping[str, Any]) -> None:
    """Raise `UserError` for a setting of a composed configuration (plain containers) that has the wrong type.

    The parts of the policy, the model and the task are checked where they are built (`harness.config.cell.Cell.parse`).
    """
    known = [field.name for field in fields(Settings)]
    check_names([name for name in config if name != "grids"], known)
    check_settings(Settings, config)
    check_settings(EngineSettings, config["engine"], "engine")
    check_names(config["engine"], [field.name for field in fields(EngineSettings)], "The engine")
    for group, kinds in GROUPS.items():
        settings, names = config[group], {**kinds, "none": Named}
        check_settings(Named, settings, group)
        if settings["name"] not in names:
            raise UserError(f"There is no {group} called '{settings['name']}'. {nearest(settings['name'], names)}")
        check_settings(names[settings["name"]], settings, group)
