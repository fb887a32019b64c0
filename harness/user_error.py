"""The one error of the harness itself, in a module that imports nothing: reading results needs no torch."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input to the harness itself. The message is a sentence: what is wrong, where, what to do."""
