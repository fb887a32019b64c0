"""Packages that only some scores need: imported when a score first asks for them."""

from __future__ import annotations

import importlib
from typing import Any

from tasks.base import TaskError


def package(module: str, distribution: str, purpose: str) -> Any:
    """The imported ``module`` of the PyPI ``distribution``.

    Raises `TaskError` with the command that installs it, where it is absent.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise TaskError(
            f"{purpose} needs the package {distribution}, which cannot be imported here ({error}): "
            f"install it with 'pip install {distribution}'."
        ) from error
