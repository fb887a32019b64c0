"""JSON Lines into checked rows: whatever is wrong is named by file and row."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks.base import TaskError

Row = Mapping[str, Any]


def is_text(value: object) -> bool:
    """A string that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_texts(value: object) -> bool:
    """A list of strings, not empty."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def is_passages(value: object) -> bool:
    """A list of passages with a text each, not empty."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and is_text(item.get("text")) for item in value)
    )


def is_pairs(value: object) -> bool:
    """A list of pairs of strings, not empty."""
    return isinstance(value, list) and bool(value) and all(is_texts(item) and len(item) == 2 for item in value)


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a text", lambda value: isinstance(value, str)),
    "text": ("a text that is not empty", is_text),
    "texts": ("a list of texts, at least one", is_texts),
    "integer": ("a whole number", lambda value: isinstance(value, int)),
    "classes": ("null or a list of class names", lambda value: value is None or is_texts(value)),
    "passages": ("a list of passages, each with a text", is_passages),
    "pairs": ("a list of pairs", is_pairs),
}


def content(file: Path) -> bytes:
    """The bytes of ``file``, unpacked where its name ends in ``.gz``."""
    try:
        return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TaskError(f"{file} is damaged or cut off: it cannot be unpacked as gzip. Fetch it again.") from None
    except OSError as error:
        raise TaskError(f"{file} cannot be read ({error.strerror}).") from None


def revision(data: bytes) -> str:
    """16 hex digits of the sha256 of what a file holds, packed or not."""
    return hashlib.sha256(data).hexdigest()[:16]


def rows(data: bytes, where: str, columns: Mapping[str, str]) -> tuple[Row, ...]:
    """Every line of ``data`` as a row that holds ``columns`` in their kinds; other columns stay.

    ``where`` is what errors call the file. Raises `TaskError` for bytes that are no UTF-8, lines that are no JSON
    objects, missing or empty columns, and for no rows at all.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise TaskError(f"{where} is empty: it holds no rows. Fetch it again.")
    return tuple(_row(line, f"{where}, row {number}", columns) for number, line in enumerate(lines, start=1))


def _row(line: bytes, place: str, columns: Mapping[str, str]) -> Row:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TaskError(f"{place} is not UTF-8 (byte {error.start}). Convert the file or fetch it again.") from None
    except (ValueError, RecursionError):
        raise TaskError(f"{place} is not JSON; the file may be cut off. Fetch it again.") from None
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise TaskError(f"{place} holds half of a surrogate pair, which is no text. Fetch the file again.") from None
    if not isinstance(row, dict):
        raise TaskError(f"{place} is no JSON object with columns, but {line[:40].decode('utf-8', 'replace')!r}.")
    check(row, place, columns)
    return row


def check(row: Row, place: str, columns: Mapping[str, str]) -> None:
    """`TaskError` where ``row`` lacks one of ``columns`` or holds something else than its kind."""
    if missing := [name for name in columns if name not in row]:
        raise TaskError(f"{place} has no column '{missing[0]}'. Every row needs {', '.join(columns)}.")
    for name, kind in columns.items():
        meaning, holds = KINDS[kind]
        if not holds(row[name]):
            found = "it is empty" if row[name] in ("", [], None) else f"it is {str(row[name])[:40]!r}"
            raise TaskError(f"{place}: column '{name}' must be {meaning}; {found}.")
