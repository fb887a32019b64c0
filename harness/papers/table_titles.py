"""What the rows and columns of a paper's table are called, merged ones by all that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.papers.paper_tables import Key, PaperTable, TableRow
from harness.papers.table_layouts import field_title, printed_title, short_title


def column_title(table: PaperTable, keys: tuple[Key, ...], under_group: bool = False) -> str:
    """A column, or all that it merges; ``under_group``: without what the heading above it says."""
    names = table.layout.columns
    if len(names) == 1:
        short = names[0] == "method" and under_group
        return ", ".join(dict.fromkeys(short_title(k) if short else title_of(names[0], k) for (k,) in keys))
    skip = 1 if under_group else 0
    parts = [
        ", ".join(dict.fromkeys(title_of(name, key[i]) for key in keys)) for i, name in enumerate(names) if i >= skip
    ]
    return " · ".join(parts)


def head_titles(table: PaperTable) -> tuple[str, ...]:
    """What the columns of row headings are called."""
    return tuple(field_title(name) for name in _shown_heads(table))


def _shown_heads(table: PaperTable) -> tuple[str, ...]:
    """Row fields in which rows differ; at least one."""
    names = table.layout.rows
    differing = [n for i, n in enumerate(names) if len({row.heads[i] for row in table.rows}) > 1]
    return tuple(differing) or names[:1]


def row_heads(table: PaperTable, rows: Sequence[TableRow]) -> tuple[str, ...]:
    """The headings of a row, or of all the rows that it merges."""
    named = [dict(zip(table.layout.rows, row.heads, strict=True)) for row in rows]
    return tuple(", ".join(dict.fromkeys(title_of(name, each[name]) for each in named)) for name in _shown_heads(table))


def panel_title(table: PaperTable, rows: Sequence[TableRow]) -> str:
    """``Budget 128``, ``Llama-3.1-8B-Instruct``; of merged rows each of their panels."""
    words = {"budget": "Budget {}", "block_size": "Block size {}", "panel": "Panel ({})"}
    parts = []
    for i, name in enumerate(table.layout.panels):
        values = ", ".join(dict.fromkeys(title_of(name, row.panel[i]) for row in rows if row.panel[i]))
        parts += [words.get(name, "{}").format(values)] if values else []
    return ", ".join(parts)


def title_of(name: str, value: str) -> str:
    """A coordinate as a reader knows it: ``2048`` tokens are ``2K``."""
    if name == "budget" and value.isdigit() and int(value) >= 1024:
        return f"{int(value) // 1024}K"
    if name == "attn_recovery_frac" and value:
        return f"recovery {value}"
    if name == "recent":
        return value or "none"
    if name == "setting":
        return value.replace("_prime", "′").replace("_pct", " (%)").replace("_", " ").replace("=", " = ")
    if name == "block_size":
        return "∞" if value == "inf" else value
    return printed_title(value)


def names_of_rows(table: PaperTable, rows: Sequence[TableRow]) -> list[str]:
    """What tells merged rows apart: their models or tasks; empty for a row of its own."""
    fields = (*table.layout.panels, *table.layout.rows)
    keys = [(*row.panel, *row.heads) for row in rows]
    differing = [i for i in range(len(fields)) if len({key[i] for key in keys}) > 1]
    return [", ".join(title_of(fields[i], key[i]).removesuffix("-Instruct") for i in differing) for key in keys]
