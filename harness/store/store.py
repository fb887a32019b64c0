"""The store of results: cells as folders, their rows as parts, and a manifest that saves reading parts again.

`Store` is all that the rest of the harness uses. The manifest is only a cache of part summaries and can be deleted at
any time. Parts never change and their names are their checksums, so an entry is right as long as a part of that name is
there, and a manifest can only lack entries. Its own name is its checksum too: several processes may write manifests at
once, and a reader takes every one that is whole.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from rich.markup import escape

from harness.atomic_files import not_written, write_atomically
from harness.console import say
from harness.store import cell_folders, parts
from harness.store.cell_folders import DamagedCellError
from harness.store.parts import DamagedPartError, Part, add_labels, to_frame

BESIDE_ROWS = ("sources", "resolved")  # of cell.json: kept with the cell, too large to stand beside every row
READERS = 4
MANIFEST_FORMAT = 1
Damaged: TypeAlias = Literal["raise", "skip"]  # what a reader does with damaged files
_MANIFESTS = "manifest-*.json"


class Store:
    """``<root>/<cell_id>/cell.json`` and ``part-<sha256>.parquet``. A sample is present or absent, never half-written.

    Any number of processes may read and append at the same time. A sample that two of them have written counts once:
    as it stands in the part whose name comes first, which depends on nothing but what the parts hold.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._remembered: set[str] = set()  # names of the parts in the manifest

    @cached_property
    def _known(self) -> dict[str, Part]:
        """Summaries of parts by their names."""
        known = load_manifest(self.root)
        self._remembered = set(known)
        return known

    def check_writable(self) -> None:
        """Raise `UserError` before anything is computed where results could not be kept."""
        probe = self.root / f".probe-{uuid.uuid4().hex[:8]}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise not_written(self.root, error) from error

    def cells(self) -> list[str]:
        """Every cell that was ever opened here, in the order of the identities."""
        return cell_folders.cell_names(self.root)

    def parts(self, cell_id: str) -> list[Part]:
        """Summaries of the cell's parts, in the order of their names. Raises `DamagedPartError`."""
        folder = self.root / cell_id
        return [self._summary(folder / name) for name in parts.part_names(folder)]

    def finished(self, cell_id: str) -> set[str]:
        """Ids of the samples that this cell already has. Raises `DamagedPartError`."""
        return {sample for part in self.parts(cell_id) for sample in part.samples}

    def describe(self, cell_id: str, description: Mapping[str, Any], samples: int = 0) -> None:
        """Write ``cell.json`` once: labels, identity and provenance of the run that opened the cell.

        ``samples``: how many this run requests; the cell is done when it has the most that any run requested.
        Raises `UserError` where that cannot be written.
        """
        folder = self.root / cell_id
        try:
            cell_folders.describe(folder, description)
            cell_folders.record_requested(folder, samples)
        except OSError as error:
            raise not_written(folder, error) from error

    def lacks_description(self, cell_id: str) -> bool:
        """Whether samples of the cell are here and its ``cell.json`` is not, as after a repair."""
        folder = self.root / cell_id
        return not (folder / cell_folders.CELL).exists() and bool(parts.part_names(folder))

    def append(self, cell_id: str, rows: Sequence[Mapping[str, Any]], spent: Mapping[str, Any] | None = None) -> None:
        """Add whole samples (docs/results-schema.md) as one new part: complete after a crash, or not there at all.

        ``spent``: what was measured for these rows together. Raises `UserError` where the part cannot be written.
        """
        folder = self.root / cell_id
        try:
            parts.write_part(folder, [{"cell_id": cell_id, **row} for row in rows], spent or {})
        except OSError as error:
            raise not_written(folder, error) from error

    def samples(self, cell_id: str) -> pa.Table:
        """The rows of one cell, every sample once, by sample id. Raises `DamagedPartError`."""
        folder = self.root / cell_id
        seen: set[str] = set()
        tables = []
        for name in parts.part_names(folder):
            table = parts.read_part(folder / name)
            ids = table["sample_id"].to_pylist()
            if not seen.isdisjoint(ids):
                table = table.filter(pa.array([sample not in seen for sample in ids]))
            seen.update(ids)
            tables.append(table)
        if not tables:
            return pa.table({})
        whole = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
        by_sample = pc.sort_indices(whole, sort_keys=[("sample_id", "ascending")])  # stable: metrics keep their order
        return parts.as_shown(whole).take(by_sample)

    def load(self, cell_ids: Iterable[str], damaged: Damaged = "raise") -> pd.DataFrame:
        """Samples joined with their cells. Cells without rows are skipped; no rows at all gives an empty frame.

        Raises `DamagedPartError` and `DamagedCellError`; with ``damaged="skip"`` these cells are named and left out.
        """
        tables = []
        for cell_id in cell_ids:
            with skipping(damaged):
                samples = self.samples(cell_id)
                if samples.num_rows:
                    labels = cell_folders.read_description(self.root / cell_id)
                    labels["config"] = json.dumps(labels["config"], sort_keys=True)
                    shown = {name: labels[name] for name in labels if name not in BESIDE_ROWS}
                    tables.append(add_labels(samples, shown))
        return to_frame(tables)

    def survey(self, cell_ids: Iterable[str]) -> tuple[dict[str, list[Part]], list[DamagedPartError]]:
        """Summaries of the parts of each cell, and the parts that are damaged. New ones are read several at a time."""
        names = {cell_id: parts.part_names(self.root / cell_id) for cell_id in cell_ids}
        files = [self.root / cell_id / name for cell_id in names for name in names[cell_id]]
        new = [file for file in files if file.name not in self._known or not file.stat().st_size]
        damaged = []
        with ThreadPoolExecutor(READERS) as pool:
            for result in pool.map(_summary_or_damage, new):
                if isinstance(result, Part):
                    self._known[result.name] = result
                else:
                    damaged.append(result)
        bad = {error.file.name for error in damaged}
        found = {
            cell_id: [self._known[name] for name in members if name not in bad] for cell_id, members in names.items()
        }
        return found, damaged

    def remember(self) -> None:
        """Write the manifest again where parts have come or gone, so that the next process need not open them."""
        found, _ = self.survey(self.cells())
        present = {part.name: part for members in found.values() for part in members}
        if present.keys() != self._remembered:
            save_manifest(self.root, present.values())
            self._remembered = set(present)

    def _summary(self, file: Path) -> Part:
        if file.name not in self._known:
            self._known[file.name] = parts.summarise_part(file)
        return self._known[file.name]


@contextmanager
def skipping(damaged: Damaged) -> Iterator[None]:
    """Name the damaged file and leave the body, instead of raising, where ``damaged`` is "skip"."""
    try:
        yield
    except (DamagedPartError, DamagedCellError) as error:
        if damaged == "raise":
            raise
        say(escape(f"Left out: {error.file} ({error.why})"))


def _summary_or_damage(file: Path) -> Part | DamagedPartError:
    try:
        return parts.summarise_part(file)
    except DamagedPartError as error:
        return error


# The manifest.


def load_manifest(root: Path) -> dict[str, Part]:
    """Every remembered part by its name, whether it still exists or not; empty without a manifest."""
    known: dict[str, Part] = {}
    for file in sorted(root.glob(_MANIFESTS)):
        try:
            content = file.read_bytes()
        except OSError:
            continue  # another process has replaced it
        if file.name == _manifest_name(content):
            known |= _from_json(json.loads(content))
    return known


def save_manifest(root: Path, parts: Iterable[Part]) -> None:
    """Replace all manifests by one of these parts. A disk that cannot be written costs time later, never a result."""
    content = json.dumps(_to_json(parts), separators=(",", ":")).encode()
    file = root / _manifest_name(content)
    with suppress(OSError):
        if not file.exists():
            write_atomically(file, content)
        for older in root.glob(_MANIFESTS):
            if older != file:
                older.unlink(missing_ok=True)


def forget_manifest(root: Path) -> None:
    """Remove every manifest."""
    for file in root.glob(_MANIFESTS):
        file.unlink(missing_ok=True)


def _manifest_name(content: bytes) -> str:
    return f"manifest-{hashlib.sha256(content).hexdigest()[:32]}.json"


def _to_json(parts: Iterable[Part]) -> dict[str, object]:
    schemas: dict[str, int] = {}  # thousands of parts have the same columns
    lines = []
    for part in sorted(parts, key=lambda part: (part.cell_id, part.name)):
        schema = schemas.setdefault(json.dumps(dict(part.columns)), len(schemas))
        lines.append([part.cell_id, part.name, part.rows, part.invalid, part.samples, schema, dict(part.spent)])
    return {"format": MANIFEST_FORMAT, "schemas": [json.loads(schema) for schema in schemas], "parts": lines}


def _from_json(content: Mapping[str, Any]) -> dict[str, Part]:
    if content["format"] != MANIFEST_FORMAT:
        return {}
    schemas = content["schemas"]
    return {
        name: Part(cell_id, name, rows, invalid, tuple(samples), schemas[schema], spent)
        for cell_id, name, rows, invalid, samples, schema, spent in content["parts"]
    }
