"""The manifest: what was once read from parts. A cache and nothing more; it can be deleted at any time.

Parts never change and their names are their checksums, so an entry is right for as long as a part of that name is
there, and a manifest is stale only in what it lacks. It lies under its own checksum too: several processes may write
theirs at once, a reader takes every one that is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.store.parts import Part
from harness.store.writing import write_atomically

FORMAT = 1
_PATTERN = "manifest-*.json"


def load(root: Path) -> dict[str, Part]:
    """Every remembered part by its name, of those that are still there and of others; empty where there is none."""
    known: dict[str, Part] = {}
    for file in sorted(root.glob(_PATTERN)):
        try:
            content = file.read_bytes()
        except OSError:
            continue  # another process has replaced it
        if file.name == _name(content):
            known |= _decoded(json.loads(content))
    return known


def save(root: Path, parts: Iterable[Part]) -> None:
    """Replace what is remembered. A disk that is full or may not be written costs time, never a result."""
    content = json.dumps(_encoded(parts), separators=(",", ":")).encode()
    file = root / _name(content)
    with suppress(OSError):
        if not file.exists():
            write_atomically(file, content)
        for older in root.glob(_PATTERN):
            if older != file:
                older.unlink(missing_ok=True)


def forget(root: Path) -> None:
    """Remove every manifest."""
    for file in root.glob(_PATTERN):
        file.unlink(missing_ok=True)


def _name(content: bytes) -> str:
    return f"manifest-{hashlib.sha256(content).hexdigest()[:32]}.json"


def _encoded(parts: Iterable[Part]) -> dict[str, object]:
    schemas: dict[str, int] = {}  # thousands of parts have the same columns
    lines = []
    for part in sorted(parts, key=lambda part: (part.cell_id, part.name)):
        schema = schemas.setdefault(json.dumps(dict(part.columns)), len(schemas))
        lines.append([part.cell_id, part.name, part.rows, part.invalid, part.samples, schema, dict(part.spent)])
    return {"format": FORMAT, "schemas": [json.loads(schema) for schema in schemas], "parts": lines}


def _decoded(content: Mapping[str, Any]) -> dict[str, Part]:
    if content["format"] != FORMAT:
        return {}
    schemas = content["schemas"]
    return {
        name: Part(cell_id, name, rows, invalid, tuple(samples), schemas[schema], spent)
        for cell_id, name, rows, invalid, samples, schema, spent in content["parts"]
    }
