"""User errors: the message is a sentence with what is wrong, where, and what to do. This module imports nothing."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input to the harness itself. The message is a sentence: what is wrong, where, what to do."""


class MissingInputError(UserError):
    """A model or data that are not on this machine. The message names the commands that fetch them, one a line."""


class CellError(UserError):
    """A cell that cannot be run as requested: parts that do not go together. The other cells of a sweep still run."""
