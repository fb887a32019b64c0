"""``python -m harness store status|gc|export|pack|verify|rebuild``: maintenance of a results folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.cli.results_folder import add_results_dir
from harness.errors import UserError
from harness.store import maintenance, work_files
from harness.store import store as manifest
from harness.store.export import FORMATS, export
from harness.store.loading import load_rows, pack
from harness.store.maintenance import AXES, STATES, counts, statuses
from harness.store.store import Store
from tasks.base import nearest

SHOWN = 5  # examples of a state that needs attention


def main(words: Sequence[str]) -> int:
    """The command line. Exit code 0 = done, 1 = damage was found, 2 = something the user can mend."""
    options = _options(words)
    store = Store(options.results_dir / "runs")
    try:
        if not store.root.is_dir():
            raise UserError(f"There is no folder {store.root}: choose the right one with results_dir=<folder>.")
        command: Callable[[Store, argparse.Namespace], int] = options.command
        return command(store, options)
    except UserError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or store.root} cannot be used ({error.strerror or error}): check it.", file=sys.stderr)
    return 2


def _status(store: Store, options: argparse.Namespace) -> int:
    found, damaged = statuses(store)
    store.remember()
    console = Console()
    for axis in AXES:
        table = Table(title=f"Cells by {axis}", title_justify="left")
        table.add_column(axis)
        for state in STATES:
            table.add_column(state, justify="right")
        for value, states in counts(found, axis).items():
            table.add_row(value, *(f"{states[state]:,}" if states[state] else "" for state in STATES))
        console.print(table)
    for state in ("stale", "invalid", "damaged"):
        for cell in [cell for cell in found if cell.state == state][:SHOWN]:
            print(f"{state} {cell.cell_id} ({cell.axis('policy')}, {cell.axis('task')}): {cell.why}")
    print(
        f"{len(found):,} cells, {sum(c.samples for c in found):,} samples, {sum(len(c.parts) for c in found):,} parts"
    )
    for error in damaged:
        print(error)
    return 1 if damaged else 0


def _gc(store: Store, options: argparse.Namespace) -> int:
    for file in maintenance.left_behind(store):
        maintenance.remove_path(file)
        print(f"Removed {file} (left behind)")
    for finding in maintenance.find_damage(store):
        print(f"{finding.file}: {finding.why}. Now in {maintenance.put_aside(store, finding.file)}")
    for path, why in work_files.unneeded(store):
        maintenance.remove_path(path)
        print(f"Removed {path} ({why})")
    if options.stale:
        for folder, why in maintenance.stale_cells(store):
            maintenance.remove_path(folder)
            print(f"Removed {folder} (stale: {why})")
    store.remember()
    return 0


def _export(store: Store, options: argparse.Namespace) -> int:
    found, damaged = statuses(store)
    if damaged:
        raise damaged[0]
    to = Path(options.to) if options.to else options.results_dir / "export"
    for file in export(store, found, to, options.format, options.stale):
        print(file)
    store.remember()
    return 0


def _pack(store: Store, options: argparse.Namespace) -> int:
    rows = load_rows(options.results_dir)
    if options.beside:
        others = load_rows(options.beside)
        rows = pd.concat([rows, others[~others["cell_id"].isin(rows["cell_id"])]], ignore_index=True)
    known = set(rows["task"])
    for task in options.without_texts:
        if task not in known:
            raise UserError(f"There are no rows of a task '{task}'. {nearest(task, known)}")
        rows.loc[rows["task"] == task, ["prediction", "reference"]] = ""
    print(pack(rows, Path(options.to) if options.to else options.results_dir))
    return 0


def _verify(store: Store, options: argparse.Namespace) -> int:
    damage = list(maintenance.find_damage(store))
    for finding in damage:
        print(f"{finding.file}: {finding.why}.")
        if options.repair and finding.file.exists():
            print(f"  Now in {maintenance.put_aside(store, finding.file)}")
    parts, _ = store.survey(store.cells())
    bad = {(finding.file.parent.name, finding.file.name) for finding in damage}
    whole = [part for members in parts.values() for part in members if (part.cell_id, part.name) not in bad]
    twice = sum(maintenance.repeated(members) for members in parts.values())
    print(f"{len(whole):,} parts of {len(parts):,} cells are whole, {len(damage):,} files are not.")
    if twice:
        print(f"{twice:,} samples stand in several parts and count once.")
    if damage:
        print(
            "What was put aside is computed again by the command that computed it first."
            if options.repair
            else "Put them aside with --repair; then only their samples are computed again."
        )
    return 0 if options.repair or not damage else 1


def _rebuild(store: Store, options: argparse.Namespace) -> int:
    manifest.forget_manifest(store.root)
    store.remember()
    print(f"The manifest of {store.root} has been made from its parts.")
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness store", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="status|gc|export|pack|verify|rebuild")

    def add(name: str, command: Callable[[Store, argparse.Namespace], int], what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        add_results_dir(added)
        added.set_defaults(command=command)
        return added

    add("status", _status, "cells that are done, running, open, stale, invalid or damaged, by axis")
    collected = add("gc", _gc, "remove what dead writers and finished workers left, put damaged files aside")
    collected.add_argument("--stale", action="store_true", help="remove stale cells too, with their rows")
    exported = add("export", _export, "write the tables samples and cells")
    exported.add_argument("--to", help="folder (default: <results_dir>/export)")
    exported.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    exported.add_argument("--stale", action="store_true", help="with cells that newer versions have superseded")
    packing = add("pack", _pack, "write all rows as one file that load_rows and reports read, without runs/")
    packing.add_argument("--to", help="folder for rows.parquet (default: the results dir)")
    packing.add_argument("--beside", help="another results folder whose cells are packed too, where they are not here")
    packing.add_argument(
        "--without-texts",
        nargs="+",
        default=[],
        metavar="TASK",
        help="tasks (longbench/multi_news) whose answers and references are left out: texts not yours to publish",
    )
    verified = add("verify", _verify, "test checksums, schema and duplicates of every part")
    verified.add_argument("--repair", action="store_true", help="put damaged files aside")
    add("rebuild", _rebuild, "make the manifest anew from the parts")
    return parser.parse_args(list(words))
