"""Numbers among the settings of a launcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import UserError


def count_of(settings: Mapping[str, Any], key: str, default: int = 1, least: int = 1) -> int:
    """A whole number; ``default`` where the setting is null. Raises `UserError`."""
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"launcher.{key}={value} is not possible: give a whole number, at least {least}.")
    return value
