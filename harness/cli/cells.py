"""``python -m harness cells show <id>`` and ``cells diff <a> <b>``: what a cell is made of; why two differ."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cli.results_folder import add_results_dir
from harness.errors import UserError
from harness.store import cell_folders

_BESIDE = ("git", "versions", "hardware", "device", "created")


def main(words: Sequence[str]) -> None:
    """The command line. Exit code 2 for ids that are unknown or stand for several cells."""
    options = _options(words)
    root = options.results_dir / "runs"
    try:
        found = [described(root, cell_id) for cell_id in options.ids]
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print("\n".join(shown(*found) if len(found) == 1 else differences(*found)))


def described(root: Path, start: str) -> dict[str, Any]:
    """``cell.json`` of the one cell whose id begins so. Raises `UserError` for none and for several."""
    names = cell_folders.cell_names(root)
    found = [name for name in names if name.startswith(start)]
    if len(found) == 1:
        return cell_folders.read_description(root / found[0])
    if found:
        raise UserError(f"'{start}' stands for {len(found)} cells ({', '.join(found[:5])}, …): write more of the id.")
    where = f"among the {len(names)} cells of {root}" if names else f"in {root}, where there are none"
    raise UserError(
        f"There is no cell '{start}' {where}: 'python -m harness store export' lists them all; choose another folder "
        "with results_dir=<folder>."
    )


def shown(cell: Mapping[str, Any]) -> list[str]:
    """Every field of the identity in a line, the source files behind it, and what is recorded beside."""
    labels = " · ".join(f"{cell.get(name)}" for name in ("model", "policy", "budget", "prompt", "task"))
    lines = [f"{cell['cell_id']}  {labels}", "", "Made of (a change of any of these is another cell):"]
    lines += [f"  {name} = {value}" for name, value in flat(cell["config"]).items()]
    for group, files in cell.get("sources", {}).items():
        lines += ["", f"Code of the {group}:", *(f"  {code}  {name}" for name, code in files.items())]
    lines += ["", "Recorded beside:", *(f"  {name}: {cell[name]}" for name in _BESIDE if name in cell)]
    return lines


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Every field in which two cells differ, as ``field: one → other``; of code the files."""
    lines = [f"{one['cell_id']} → {other['cell_id']}"]
    lines += _changes("", flat(one["config"], "code"), flat(other["config"], "code"))
    for group in one["config"].get("code", {}) | other["config"].get("code", {}):
        before, after = (cell.get("sources", {}).get(group, {}) for cell in (one, other))
        lines += _changes(f"code of the {group}, ", before, after)
    if len(lines) == 1:
        lines.append("They are made of the same." if one["config"] == other["config"] else "Only in code not recorded.")
    return lines


def flat(data: Mapping[str, Any], without: str = "", before: str = "") -> dict[str, Any]:
    """The leaves under dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in data.items():
        if name == without:
            continue
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, before=f"{before}{name}.")
        else:
            leaves[f"{before}{name}"] = value
    return leaves


def _changes(what: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [
        f"  {what}{name}: {one.get(name, 'absent')} → {other.get(name, 'absent')}"
        for name in dict.fromkeys([*one, *other])
        if one.get(name, "absent") != other.get(name, "absent")
    ]


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness cells", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="show|diff")
    for name, count, what in (("show", 1, "what a cell is made of"), ("diff", 2, "why two cells differ")):
        added = commands.add_parser(name, help=what, description=what)
        added.add_argument("ids", nargs=count, metavar="id", help="the id of a cell, or how it begins")
        add_results_dir(added)
    return parser.parse_args(list(words))
