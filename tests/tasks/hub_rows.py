"""Rows and files as the hub has them, made of the fixtures."""

from __future__ import annotations

import json

from tasks.data.tables import table


def rows_of(name, number):
    """As many rows as asked, with ids of their own, after the fixture's first one."""
    first = dict(table(f"longbench/{name}", "fixture").rows[0])
    return [{**first, "_id": f"{name}-{index}"} for index in range(number)]


def lines(rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
