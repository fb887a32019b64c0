"""Reads what W&B has written offline: its transaction log (LevelDB's log format), and the files beside it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, struct.Struct("<IHB")  # bytes; checksum, length, kind of a piece
WHOLE, LAST = 1, 4


class OfflineRun:
    """One ``offline-run-*`` folder: ``config``, ``history`` (a dictionary per step), ``summary``, ``artifacts``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.artifacts: dict[str, Any] = {}
        self.name = self.project = self.group = ""
        self.exit_code: int | None = None
        (log,) = folder.glob("*.wandb")
        for record in records(log):
            self._take(record)

    def _take(self, record: Any) -> None:
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self.name, self.project, self.group = record.run.display_name, record.run.project, record.run.run_group
            self.config |= values(record.run.config.update)
        elif kind == "config":
            self.config |= values(record.config.update)
        elif kind == "summary":
            self.summary |= values(record.summary.update)
        elif kind == "history":
            self.history.append(values(record.history.item))
        elif kind == "artifact":
            self.artifacts[record.artifact.type] = record.artifact
        elif kind == "exit":
            self.exit_code = record.exit.exit_code

    def logged(self, key: str) -> dict[str, Any]:
        """What was logged last under this key: a description with ``path`` for everything that is a file."""
        return [step[key] for step in self.history if key in step][-1]

    def table(self, key: str) -> list[dict[str, Any]]:
        """A logged table, read from its file."""
        return lines(self.folder / "files" / self.logged(key)["path"])

    def text(self, key: str) -> str:
        """A logged page, read from its file."""
        return (self.folder / "files" / self.logged(key)["path"]).read_text()

    def artifact_table(self, kind: str) -> list[dict[str, Any]]:
        """The table within an artifact of this type."""
        (content,) = self.artifacts[kind].manifest.contents
        return lines(Path(content.local_path))


def lines(file: Path) -> list[dict[str, Any]]:
    table = json.loads(file.read_text())
    return [dict(zip(table["columns"], line, strict=True)) for line in table["data"]]


def values(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        *outer, last = item.nested_key or [item.key]
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)
    return found


def records(log: Path) -> Iterator[Any]:
    """The records of a transaction log, in their order."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, pieces = log.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + HEADER.size <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER.size:  # a header never crosses blocks
            at += left
            continue
        _, length, kind = HEADER.unpack_from(data, at)
        at += HEADER.size
        pieces += data[at : at + length]
        at += length
        if kind in (WHOLE, LAST):
            yield Record.FromString(pieces)
            pieces = b""
