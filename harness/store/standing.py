"""Stale cells: older versions of cells, computed with code, data or a model that are no longer what is here now."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tasks
from harness import model_files
from harness.origin import identity, sources

LABELS = ("model", "policy", "budget", "prompt", "block_size", "task", "dtype", "seed")  # what tables group by
_VERSION_OF_TASK = ("version", "revision")


def reason_stale(description: Mapping[str, Any]) -> str:
    """Why a cell (its ``cell.json``) is an older version, as a few words; empty where it is not, or nobody can tell."""
    config = description["config"]
    if config.get("format", identity.FORMAT) != identity.FORMAT:
        return f"identity of format {config['format']}, now {identity.FORMAT}"
    resolved = description.get("resolved", {})
    reasons = [_changed_code(description.get("sources", {}))]
    if task := resolved.get("task"):
        reasons.append(_changed_task(config["task"], task))
    if model := resolved.get("model"):
        reasons.append(_changed_model(config["model"], str(model.get("path")), model.get("revision")))
    return "; ".join(filter(None, reasons))


def superseded(descriptions: Iterable[Mapping[str, Any]]) -> set[str]:
    """The cells that must not stand beside their newer versions in one table.

    A stale cell gives way to every present cell that tables would show under the same labels, and any cell to one of
    the same settings that was opened later: code that was typed into a notebook cannot be asked whether it is stale.
    """
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for description in descriptions:
        alike.setdefault(_key([description.get(label) for label in LABELS]), []).append(description)
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
    """Most cells of a store have the same files behind them."""
    return tuple(name for name, code in recorded if _code_now(name) not in (code, None))


@cache
def _code_now(name: str) -> str | None:
    """The hash of the code in a file as `sources.label` calls it; None for other people's files that are not here."""
    for root in (sources.ROOT, *map(Path, sys.path)):
        if (root / name).is_file():
            return sources.of_code(root / name)
    ours = (sources.ROOT / name).parent.exists()
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
    if model_files.folder_of(path) is None or not model_files.folder_of(path).is_dir():  # type: ignore[union-attr]
        return None
    return model_files.version(path, None)["content"]
