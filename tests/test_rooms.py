"""The rooms of docs/design/architecture.md: imports point down, and the table there is what the code does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOPS = ("harness", "hydra_plugins", "policies", "scripts", "tasks")
MOST_ROOMS = 20
MOST_FILES_OF_A_RUN = 130


@dataclass(frozen=True)
class Room:
    """A line of the table. ``paths``: folders and files; ``below``: first paths of the rooms that it imports."""

    paths: tuple[str, ...]
    below: frozenset[str]
    never: frozenset[str]

    @property
    def name(self) -> str:
        return self.paths[0]


@cache
def rooms() -> list[Room]:
    """In the order of the table, top to bottom."""
    page = (ROOT / "docs/design/architecture.md").read_text()
    table = page.partition("\n## The rooms\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return [Room(tuple(ticked(line[0])), frozenset(ticked(line[2])), frozenset(ticked(line[3]))) for line in lines]


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def modules() -> dict[str, Path]:
    """By dotted name, every Python file of the product."""
    files = [file for top in TOPS for file in (ROOT / top).rglob("*.py")]
    return {dotted(file): file for file in files}


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> Room:
    """The room with the longest path that holds the module."""
    file = modules()[module].relative_to(ROOT).as_posix()
    fitting = [(path, room) for room in rooms() for path in room.paths if file == path or file.startswith(path)]
    assert fitting, f"{file} belongs to no room of the table"
    return max(fitting, key=lambda pair: len(pair[0]))[1]


def imported(file: Path) -> set[str]:
    """Dotted names that a file imports when it runs, inside functions too."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: imports are written in full, for readers and for this test"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found


def module_of(name: str) -> str | None:
    """The module of ours that a dotted name lies in; None for other people's."""
    parts = name.split(".")
    known = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((each for each in known if each in modules()), None)


@cache
def reached_by(module: str) -> frozenset[str]:
    """Modules of ours that a module imports itself, the packages around them included."""
    found = set()
    for name in imported(modules()[module]):
        inner = module_of(name)
        while inner:
            found.add(inner)
            inner = module_of(inner.rpartition(".")[0])
    return frozenset(found - {module})


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_the_table_names_exactly_the_rooms_that_a_room_imports(room):
    members = [module for module in modules() if room_of(module) == room]
    arrows: dict[str, list[str]] = {}
    for module in members:
        for name in imported(modules()[module]):
            other = module_of(name)
            if other and room_of(other) != room:
                arrows.setdefault(room_of(other).name, []).append(f"{module} imports {name}")
    unnamed = {name: why for name, why in arrows.items() if name not in room.below}
    assert not unnamed, f"{room.name} may not import these: {unnamed}"
    assert room.below == set(arrows), f"{room.name} does not import {sorted(room.below - set(arrows))}"


def test_imports_point_down_only():
    names = [room.name for room in rooms()]
    for number, room in enumerate(rooms()):
        upward = [name for name in room.below if name not in names[number + 1 :]]
        assert not upward, f"{room.name} imports {upward}, which do not stand below it"


def test_there_are_few_rooms():
    assert 0 < len(rooms()) <= MOST_ROOMS


def test_every_room_exists():
    for room in rooms():
        assert all((ROOT / path).exists() for path in room.paths), room


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_a_room_keeps_out_of_packages_that_it_does_not_need(room):
    for module in modules():
        if room_of(module) == room:
            roots = {name.partition(".")[0] for name in imported(modules()[module])}
            assert not roots & room.never, module


def test_a_run_reaches_few_files():
    """A newcomer who follows every import from ``python -m harness run``, also those inside functions."""
    reached: set[str] = set()
    waiting = ["harness.cli.run"]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += reached_by(module)
    assert len(reached) <= MOST_FILES_OF_A_RUN


def test_a_class_name_means_one_thing():
    places: dict[str, list[str]] = {}
    for module, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_a_module_name_means_one_thing():
    """Commands aside: ``harness/cli/`` has a module for each, named as it is typed."""
    places: dict[str, list[str]] = {}
    for module, file in modules().items():
        if not file.name.startswith("__") and not module.startswith("harness.cli."):
            places.setdefault(file.stem, []).append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1}


@pytest.mark.parametrize("package", ["policies", "tasks"])
def test_it_imports_where_there_is_no_harness(package, tmp_path):
    (tmp_path / package).symlink_to(ROOT / package)
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import {package}; assert 'harness' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
