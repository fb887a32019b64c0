"""Content hashes of what a task is made of besides its fields: data, prompts, scoring code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path


def of_text(*texts: str) -> str:
    """16 hex digits of texts in this order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()[:16]


def of_files(*files: Path) -> str:
    """16 hex digits of names and contents, in the order of the names."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        content = file.read_bytes()
        digest.update(f"{file.name}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


def of_sources(*functions: Callable[..., object]) -> str:
    """16 hex digits of the source files in which these functions stand."""
    return of_files(*{Path(inspect.getfile(function)) for function in functions})
