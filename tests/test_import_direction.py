"""Imports point one way: policies and tasks know nothing of the harness, nor of each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_NOT_IMPORT = {
    "policies": {"harness", "tasks", "transformers", "hydra", "omegaconf"},
    "tasks": {"harness", "policies", "torch", "transformers", "hydra", "omegaconf"},
    "harness/engine": {"tasks", "hydra", "omegaconf", "pandas"},
}


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("room", MAY_NOT_IMPORT)
def test_no_file_of_the_room_imports_what_it_may_not(room):
    for file in (ROOT / room).rglob("*.py"):
        roots = {name.partition(".")[0] for name in imported(file)}
        assert not roots & MAY_NOT_IMPORT[room], file


def test_the_engine_uses_nothing_of_the_rest_of_the_harness():
    for file in (ROOT / "harness/engine").glob("*.py"):
        harness = {name for name in imported(file) if name.startswith("harness")}
        assert all(name.startswith("harness.engine") for name in harness), file


@pytest.mark.parametrize("package", ["policies", "tasks"])
def test_it_imports_where_there_is_no_harness(package, tmp_path):
    (tmp_path / package).symlink_to(ROOT / package)
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import {package}; assert 'harness' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
