"""The terminal: one console, and one way to print a line."""

from __future__ import annotations

from rich.console import Console

console = Console()


def say(text: str) -> None:
    """A line of plain text with rich's markup, paths unbroken."""
    console.print(text, highlight=False, soft_wrap=True)
