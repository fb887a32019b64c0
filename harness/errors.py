"""Errors that a user can mend: they end in one sentence and exit code 2, never in a traceback."""

from __future__ import annotations

from harness.engine.rows import EngineError
from harness.user_error import UserError
from policies import PolicyError
from tasks.base import TaskError

__all__ = ["MENDABLE", "CellError", "UserError"]


class CellError(UserError):
    """A cell that cannot be run as asked: parts that do not go together. The other cells of a sweep still run."""


MENDABLE = (UserError, EngineError, PolicyError, TaskError)
