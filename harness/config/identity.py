"""What a cell is: `cell_identity` names it by exactly the fields that change its outputs.

Included: the policy with all its settings, the budget, the regime, the task's protocol and data, the model's content or
revision, and the code between a configuration and a row. Left out: device, batch width, launcher, folders, ``limit``,
names and package versions, which are only recorded (`harness.config.provenance`). The hashes of model folders and of
plain data are made here too; those of source code in `harness.config.source_code`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import source_code

if TYPE_CHECKING:
    from harness.config.cell import Cell
    from policies import Policy

WHOLE_FILE_LIMIT = 128 * 2**20  # bytes; of larger weight files only samples are read
HASH_SAMPLES, SAMPLE_BYTES = 256, 16 * 2**10  # spread evenly from the first byte to the last
IDENTITY_FORMAT = 3  # raised whenever the fields of an identity change their meaning

# Every cell passes through these, whatever its policy and task are: between a configuration and the engine, and between
# the engine and a row.
BETWEEN = ("config.budget", "config.model", "runner.prompt_encoder", "runner.samples")
EVERY_POLICY = frozenset(f"policies.{name}" for name in ("policy", "scorer", "selection", "view"))


def cell_identity(cell: Cell) -> dict[str, Any]:
    """Plain data, the same on every machine. Code is included by group; `cell_code` lists the files of each group."""
    prompting = cell.prompting
    block: dict[str, Any] = {"block_size": prompting.block_size} if prompting.has_blocks else {}
    if prompting.split != "whole":
        block["split"] = prompting.split
    return {
        "format": IDENTITY_FORMAT,
        "model": cell.model.identity(),
        "policy": {name: part for name, part in part_description(cell.policy).items() if name != "name"},
        "budget": dataclasses.asdict(cell.budget),
        "prompt": {"regime": prompting.regime, **block},
        "task": {**cell.protocol, **cell.task.settings},
        "code": {group: hash_data(files) for group, files in cell.code.items()},
    }


def cell_code(cell: Cell) -> dict[str, source_code.Files]:
    """The files that decide the outputs of this cell and the hash of the code in each, by group."""
    task = (file for kind in _part_classes(cell.task) for file in source_code.files_behind(kind))
    return {
        "engine": source_code.hash_sources(_engine_files()),
        "policy": policy_code(cell.policy),
        "task": source_code.hash_sources(task),
    }


@cache
def _engine_files() -> tuple[Path, ...]:
    """The files that every cell passes through."""
    engine = (source_code.ROOT / "harness" / "engine").rglob("*.py")
    return (*engine, *source_code.files_of_modules(f"harness.{name}" for name in BETWEEN))


def policy_code(policy: Policy) -> source_code.Files:
    """The code of a policy and all its parts: of files, and of classes that a notebook or a script defines."""
    parts = _part_classes(policy)
    files = (file for part in parts for file in source_code.files_behind(part, EVERY_POLICY))
    session = source_code.session_code_hashes(parts, EVERY_POLICY)
    return source_code.hash_sources([*source_code.files_of_modules(sorted(EVERY_POLICY)), *files]) | session


def part_description(part: Any) -> dict[str, Any]:
    """A frozen dataclass as plain data, the classes of its parts included; a setting of 2.0 is that of 2."""
    settings = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {"class": type(part).__name__, **{name: _plain(value) for name, value in settings.items()}}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return part_description(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _part_classes(part: Any) -> list[Callable[..., object]]:
    """The classes of a dataclass and of all parts within it: the code that decides what it does."""
    within = [getattr(part, field.name) for field in dataclasses.fields(part)]
    return [type(part), *(kind for inner in within if dataclasses.is_dataclass(inner) for kind in _part_classes(inner))]


# Hashes of data and files.


def hash_data(data: Mapping[str, Any]) -> str:
    """16 hex digits of canonical JSON: key order and spacing do not matter, values do."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def hash_files(files: tuple[Path, ...]) -> str:
    """16 hex digits over names and contents, in the order of the names.

    Of a file beyond `WHOLE_FILE_LIMIT` the size and 4 MiB of samples count: training changes weights everywhere, but
    a change of a few bytes in such a file can go unseen.
    """
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode())
        size = file.stat().st_size
        digest.update(file.read_bytes() if size <= WHOLE_FILE_LIMIT else _file_samples(file, size))
    return digest.hexdigest()[:16]


def _file_samples(file: Path, size: int) -> bytes:
    """The size and evenly spread pieces of a large file, its beginning and its end among them."""
    last = size - SAMPLE_BYTES
    with file.open("rb") as stream:
        pieces = []
        for number in range(HASH_SAMPLES):
            stream.seek(last * number // (HASH_SAMPLES - 1))
            pieces.append(stream.read(SAMPLE_BYTES))
    return b"".join((str(size).encode(), *pieces))
