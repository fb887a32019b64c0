"""Lines of figures as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from scripts.bench.conditions import Line

WIDTH = 140


def show(title: str, lines: Sequence[Line]) -> None:
    """Print them; columns are all names that occur, in their order."""
    table = Table(title=title, title_justify="left")
    columns = list(dict.fromkeys(name for line in lines for name in line))
    for column in columns:
        table.add_column(column, justify="left" if column == "what" else "right")
    for line in lines:
        table.add_row(*(_text(line.get(column, "")) for column in columns))
    Console(width=WIDTH).print(table)


def _text(value: object) -> str:
    """Broken numbers with three digits, large ones as whole numbers."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
