"""The results store: one directory per cell, append-only parquet parts, each written atomically."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError


class Store:
    """``<root>/<cell_id>/cell.json`` and ``part-*.parquet``. A sample is present or absent, never half-written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def check_writable(self) -> None:
        """Raise `UserError` before anything is computed where results could not be kept."""
        probe = self.root / f".probe-{uuid.uuid4().hex[:8]}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(
                f"Results cannot be written to {self.root} ({error.strerror}): make the folder writable or choose "
                "another with results_dir=<folder>."
            ) from error

    def finished(self, cell_id: str) -> set[str]:
        """Ids of the samples that this cell already has."""
        parts = self._parts(cell_id)
        return {sample for part in parts for sample in pd.read_parquet(part, columns=["sample_id"])["sample_id"]}

    def describe(self, cell_id: str, description: Mapping[str, Any]) -> None:
        """Write ``cell.json`` once: labels, identity and provenance of the run that opened the cell."""
        file = self.root / cell_id / "cell.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(dict(description), indent=1, sort_keys=True).encode())

    def append(self, cell_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows (docs/design/rows.md) as one new part: complete after a crash, or not there at all."""
        frame = pd.DataFrame([{"cell_id": cell_id, **row} for row in rows])
        write_atomically(self.root / cell_id / f"part-{uuid.uuid4().hex}.parquet", frame.to_parquet(index=False))

    def load(self, cell_ids: Iterable[str]) -> pd.DataFrame:
        """Samples joined with their cells. Cells without rows are skipped; no rows at all gives an empty frame."""
        frames = []
        for cell_id in cell_ids:
            parts = self._parts(cell_id)
            if not parts:
                continue
            labels = json.loads((self.root / cell_id / "cell.json").read_text())
            labels["config"] = json.dumps(labels["config"], sort_keys=True)
            frame = pd.concat([pd.read_parquet(part) for part in parts], ignore_index=True)
            frames.append(frame.assign(**labels))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def _parts(self, cell_id: str) -> list[Path]:
        return sorted((self.root / cell_id).glob("part-*.parquet"))


def load_rows(results_dir: str | Path = "results") -> pd.DataFrame:
    """Every row under ``<results_dir>/runs``, samples joined with their cells (docs/design/rows.md)."""
    root = Path(results_dir) / "runs"
    return Store(root).load(sorted(file.parent.name for file in root.glob("*/cell.json")))


def write_atomically(file: Path, content: bytes) -> None:
    """Write under a temporary name, flush to the disk, rename: readers see the whole file or none."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
