"""All current rows of a results folder as one pandas frame, from its cells or from one packed file.

A cell is stale when it was computed with other code, data or another model than those that are here now. Stale cells
are left out where a newer version of them is present. A packed file (``rows.parquet``) is the same rows as one small
file, to be kept under version control or sent to others: it can be read (reports, claims), but not added to.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import tasks
from harness.atomic_files import not_written, write_atomically
from harness.config import identity, model_files, source_code
from harness.config.type_check import check_value
from harness.errors import UserError
from harness.store import cell_folders, parts
from harness.store.store import Damaged, Store, skipping

_VERSION_OF_TASK = ("version", "revision")
PACKED_FILE = "rows.parquet"
AS_JSON = b"kvreplica.json"  # columns that hold text in some cells and numbers in others, which no parquet column can


def load_rows(results_dir: str | Path = "results", damaged: Damaged = "raise") -> pd.DataFrame:
    """Every row under ``<results_dir>/runs``, samples joined with their cells (docs/results-schema.md).

    Cells that a newer version of the code, the data or the model has superseded are left out. A folder without ``runs``
    may hold the rows packed (``python -m harness store pack``).

    Raises `UserError` for files that are damaged; with ``damaged="skip"`` the cells with such files are left out, each
    named in a line.
    """
    check_value(str | Path, results_dir, "results_dir")
    check_value(Damaged, damaged, "damaged")
    if Path(results_dir).is_file():
        raise UserError(f"{results_dir} is a file: give the results folder that it lies in.")
    store, one_file = _places(results_dir)
    return read_packed(one_file) if one_file else store.load(_shown(store, damaged), damaged)


def rows_fingerprint(results_dir: str | Path) -> str:
    """16 hex digits that are the same as long as `load_rows` gives the same rows.

    Parts are not read, as their names are checksums.
    """
    store, one_file = _places(results_dir)
    if one_file:
        return identity.hash_data({"file": hashlib.sha256(one_file.read_bytes()).hexdigest()})
    folders = {name: store.root / name for name in _shown(store)}
    return identity.hash_data(
        {name: [cell_folders.read_description(folder), *parts.part_names(folder)] for name, folder in folders.items()}
    )


def _places(results_dir: str | Path) -> tuple[Store, Path | None]:
    """The store, and the packed file that replaces it where there is no store."""
    store, one_file = Store(Path(results_dir) / "runs"), Path(results_dir) / PACKED_FILE
    return store, one_file if one_file.exists() and not store.root.exists() else None


def _shown(store: Store, damaged: Damaged = "raise") -> list[str]:
    """The cells that are not superseded by newer ones."""
    described = {}
    for name in store.cells():
        with skipping(damaged):
            described[name] = cell_folders.read_description(store.root / name)
    hidden = superseded(described.values())
    return [name for name in described if name not in hidden]


# Stale cells.


def reason_stale(description: Mapping[str, Any]) -> str:
    """Why a cell (its ``cell.json``) is stale, as a few words; empty where it is not, or where that cannot be known."""
    config = description["config"]
    if config.get("format", identity.IDENTITY_FORMAT) != identity.IDENTITY_FORMAT:
        return f"identity of format {config['format']}, now {identity.IDENTITY_FORMAT}"
    resolved = description.get("resolved", {})
    reasons = [_changed_code(description.get("sources", {}))]
    if task := resolved.get("task"):
        reasons.append(_changed_task(config["task"], task))
    if model := resolved.get("model"):
        reasons.append(_changed_model(config["model"], str(model.get("path")), model.get("revision")))
    return "; ".join(filter(None, reasons))


def superseded(descriptions: Iterable[Mapping[str, Any]]) -> set[str]:
    """The ids of cells that must not stand in one table with their newer versions.

    A stale cell gives way to every present cell with the same labels. Any cell gives way to a later one with the same
    settings, because code that was typed into a notebook cannot be checked for changes.
    """
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for description in descriptions:
        alike.setdefault(_key([description.get(label) for label in cell_folders.LABELS]), []).append(description)
    hidden: set[str] = set()
    for members in alike.values():
        if len(members) == 1:
            continue
        current = [member for member in members if not reason_stale(member)] or members
        latest = {settings(member): member for member in sorted(current, key=lambda m: str(m.get("created")))}
        hidden |= {member["cell_id"] for member in members} - {member["cell_id"] for member in latest.values()}
    return hidden


def settings(description: Mapping[str, Any]) -> str:
    """A cell's identity without the versions of its code, data and model: the same for all versions of it."""
    config = {name: value for name, value in description["config"].items() if name not in ("format", "code", "model")}
    task = {name: value for name, value in config.get("task", {}).items() if name not in _VERSION_OF_TASK}
    return _key([config | {"task": task}, description.get("resolved", {}).get("model")])


def _key(data: object) -> str:
    return json.dumps(data, sort_keys=True)


def _changed_code(recorded: Mapping[str, Mapping[str, str]]) -> str:
    changed = {name for files in recorded.values() for name in _changed_files(tuple(files.items()))}
    return f"code has changed: {', '.join(sorted(changed))}" if changed else ""


@cache
def _changed_files(recorded: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Cached, because most cells of a store use the same files."""
    return tuple(name for name, code in recorded if _code_now(name) not in (code, None))


@cache
def _code_now(name: str) -> str | None:
    """The hash of the code in a file named by `source_label`; None for files of other packages that are not here."""
    for root in (source_code.ROOT, *map(Path, sys.path)):
        if (root / name).is_file():
            return source_code.hash_code(root / name)
    ours = (source_code.ROOT / name).parent.exists()
    return "removed" if ours else None


def _changed_task(recorded: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    now = _task_now(_key(resolved))
    if now is None:
        return ""
    if now["version"] != recorded["version"]:
        return f"task has version {now['version']}, was {recorded['version']}"
    changed = sorted(what for what, code in now["revision"].items() if recorded["revision"].get(what) != code)
    return f"task has changed: {', '.join(changed)}" if changed else ""


@cache
def _task_now(resolved: str) -> dict[str, Any] | None:
    """Version and revision of a configured task today; None where it or its data is not here."""
    try:
        task = tasks.build(**json.loads(resolved))
        return {"version": task.version, "revision": dict(task.revision())}
    except (tasks.TaskError, TypeError, OSError):
        return None


def _changed_model(recorded: Mapping[str, Any], path: str, revision: str | None) -> str:
    if "content" in recorded:
        now = _content_now(path)
        return "the model's files have changed" if now not in (recorded["content"], None) else ""
    commit = model_files.cached_commit(path, revision)
    return f"the model's commit is {commit}" if commit not in (recorded["revision"], None) else ""


@cache
def _content_now(path: str) -> str | None:
    if model_files.model_folder(path) is None or not model_files.model_folder(path).is_dir():  # type: ignore[union-attr]
        return None
    return model_files.model_version(path, None)["content"]


# Packed rows.


def pack(rows: pd.DataFrame, to: Path) -> Path:
    """Write the rows of `harness.store.loading.load_rows` as ``<to>/rows.parquet`` and return that file.

    Ordered by cell and sample, so that the same rows give the same bytes with the same pyarrow; a sample's metrics stay
    in their order, the task's headline first. Raises `UserError` where there are no rows or the file cannot be written.
    """
    if rows.empty:
        raise UserError("There are no rows to pack: choose the right folder with results_dir=<folder>.")
    ordered = rows.sort_values(["cell_id", "sample_id"], kind="stable", ignore_index=True)
    mixed = [str(name) for name in ordered if ordered[name].dropna().map(type).nunique() > 1]
    table = pa.Table.from_pandas(
        ordered.assign(**{name: ordered[name].map(_json) for name in mixed}), preserve_index=False
    )
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), AS_JSON: json.dumps(mixed)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    try:
        to.mkdir(parents=True, exist_ok=True)
        write_atomically(to / PACKED_FILE, buffer.getvalue())
    except OSError as error:
        raise not_written(to, error) from error
    return to / PACKED_FILE


def read_packed(file: Path) -> pd.DataFrame:
    """The rows of a packed file. Raises `UserError` where it is damaged."""
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file} cannot be read ({error}): restore it, or pack the rows again.") from error
    rows: pd.DataFrame = parts.as_shown(table).to_pandas()
    mixed = json.loads((table.schema.metadata or {}).get(AS_JSON, b"[]"))
    return rows.assign(**{name: rows[name].map(json.loads, na_action="ignore") for name in mixed})


def _json(value: Any) -> str | None:
    return None if pd.isna(value) else json.dumps(value)
