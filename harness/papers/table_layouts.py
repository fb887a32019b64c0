"""How each table is laid out in print, as data (``results/published/layouts.yaml``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import yaml

from harness.papers.published import FOLDER, known_paper, published_frame

FIELDS = ("model", "method", "task", "budget", "block_size", "metric")


@dataclass(frozen=True)
class Layout:
    """Fields of `PrintedNumber` that make panels, rows and columns; ``best``: fields over which the best is ranked.

    ``wrap``: the number of columns after which the print goes on below; 0: it does not.
    ``ask``: what the experiment takes where the print leaves it open (``budget``, ``task``, ``method``,
    ``empty_budget``, ``budget_by``, ``method_by``), and the item whose cells answer where it has none of its own
    (``cells_of``).
    """

    panels: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    best: tuple[str, ...]
    wrap: int = 0
    ask: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PrintedNumber:
    """One number of a printed table. ``at``: its coordinates, words of the note included.

    ``printed`` is empty where the text has the caption alone or lost the number.
    """

    at: Mapping[str, str]
    value: float
    printed: str
    unit: str
    higher_is_better: str  # "true", "false", ""
    note: str
    flag: str
    flag_reason: str


@cache
def _layouts_file() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "layouts.yaml").read_text())
    return found


def layout(paper: str, item: str) -> Layout | None:
    """The layout of a table; None for what has none (figures, tables without numbers)."""
    given = _layouts_file()["tables"][known_paper(paper)].get(item)
    if given is None:
        return None
    parts = {name: tuple(given.get(name, ())) for name in ("panels", "rows", "columns", "best")}
    return Layout(**parts, wrap=given.get("wrap", 0), ask=given.get("ask", {}))


def printed_numbers(paper: str, item: str) -> list[PrintedNumber]:
    """Every number of a table in the order of print; of a table of which only the caption is known, empty ones."""
    cells = _layouts_file()["tables"][known_paper(paper)].get(item, {}).get("cells")
    if cells:
        return [
            PrintedNumber(at, float("nan"), "", "points", "true", _note(at), "", "only the caption is in the text")
            for at in _product(cells)
        ]
    found = published_frame(paper)
    lines = found[found["table"] == item].to_dict("records")
    return [
        PrintedNumber(
            at, float(line["value"]), line["printed"], line["unit"], line["higher_is_better"],
            line["note"], line["flag"], line["flag_reason"],
        )
        for line, at in zip(lines, _mark_repeats([_coordinates(line) for line in lines]), strict=True)
    ]  # fmt: skip


def printed_title(word: str) -> str:
    """A method, task, model or metric as a heading; the word itself where it has no other."""
    return str(_layouts_file()["titles"].get(word, word))


def field_title(name: str) -> str:
    """What a column of row headings is called."""
    return str(_layouts_file()["fields"].get(name, name))


def budget_of(paper: str) -> str:
    """What the paper's shares are shares of; empty where it gives slots, or shares of the prompt."""
    return str(_layouts_file()["budget_of"].get(paper, ""))


def column_group(word: str) -> str:
    """The heading above the column of a task or method; empty for an average."""
    together = _layouts_file()["columns_together"]
    return next((heading for heading, words in together.items() if word in words), "")


def short_title(word: str) -> str:
    """A method under its heading: ``+ CAOTE``; else as `printed_title`."""
    return str(_layouts_file()["short_titles"].get(word) or printed_title(word))


def _coordinates(line: Mapping[Any, Any]) -> dict[str, str]:
    at = {name: str(line[name]) for name in FIELDS}
    if line["budget_unit"] == "percent":
        at["budget"] += "%"
    words = str(line["note"]).split("; ")
    at |= dict(word.split("=", 1) for word in words if word.count("=") == 1 and " " not in word.split("=")[0])
    if "panel" in at and len(words) > 1:
        at["setting"] = words[1]
    return at


def _mark_repeats(coordinates: list[dict[str, str]]) -> list[dict[str, str]]:
    """A row that the paper prints twice under one name has ``time`` = "2nd" the second time."""
    seen: set[tuple[str, ...]] = set()
    for at in coordinates:
        key = tuple(at[name] for name in (*FIELDS, *sorted(set(at) - set(FIELDS))))
        if key in seen:
            at["time"] = "2nd"
        seen.add(key)
    return coordinates


def _note(at: Mapping[str, str]) -> str:
    """The words that name a row of a sensitivity table, as notes have them."""
    return "; ".join(f"{name}={value}" for name, value in at.items() if name not in FIELDS and value)


def _product(cells: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The coordinates that ``cells`` spans (a product); a dense row has no budget and is given once."""
    given = {name: _flat(value) for name, value in cells.items()}
    seen = set()
    for values in product(*given.values()):
        at = dict.fromkeys(FIELDS, "") | dict(zip(given, values, strict=True))
        if at["method"] == "dense":
            at |= {"budget": "", "block_size": ""}
        if (key := tuple(at.values())) not in seen:
            seen.add(key)
            yield at


def _flat(value: Any) -> list[str]:
    if not isinstance(value, list):
        return [str(value)]
    return [each for part in value for each in _flat(part)]
