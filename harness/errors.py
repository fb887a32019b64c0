"""Errors that a user can mend: they end in one sentence and exit code 2, never in a traceback."""

from __future__ import annotations

from harness.engine import EngineError
from policies import PolicyError
from tasks.base import TaskError


class UserError(ValueError):
    """Bad input to the harness itself. The message is a sentence: what is wrong, where, what to do."""


MENDABLE = (UserError, EngineError, PolicyError, TaskError)
