"""Errors that a user can mend. The message is a sentence: what is wrong, where, what to do. Imports nothing."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input to the harness itself. The message is a sentence: what is wrong, where, what to do."""


class CellError(UserError):
    """A cell that cannot be run as asked: parts that do not go together. The other cells of a sweep still run."""
