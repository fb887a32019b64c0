"""Content hashes: of source code that decides outputs, of model folders, of plain data."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

WHOLE_FILE_LIMIT = 64 * 2**20  # bytes; larger weight files are identified by name and size


def of_data(data: Mapping[str, Any]) -> str:
    """16 hex digits of canonical JSON: key order and spacing do not matter, values do."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def of_files(files: tuple[Path, ...]) -> str:
    """16 hex digits over names and contents, in the order of the names."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode())
        size = file.stat().st_size
        digest.update(file.read_bytes() if size <= WHOLE_FILE_LIMIT else str(size).encode())
    return digest.hexdigest()[:16]


def of_package(package: ModuleType) -> str:
    """All Python sources directly in a package."""
    return of_files(tuple(Path(inspect.getfile(package)).parent.glob("*.py")))


def of_sources(*things: Callable[..., object]) -> str:
    """The source files in which these classes and functions are defined."""
    return of_files(tuple({Path(inspect.getfile(thing)) for thing in things}))
