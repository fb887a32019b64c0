"""Published numbers and verdicts are read without a model: neither room reaches into the engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOREIGN = (
    "torch",
    "transformers",
    "hydra",
    "omegaconf",
    "tasks",
    "harness.engine",
    "harness.runner.worker",
    "harness.store",
)


@pytest.mark.parametrize("room", ["harness/published", "harness/verdicts"])
def test_no_file_of_the_room_imports_what_it_may_not(room):
    files = list((ROOT / room).glob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith(FOREIGN)], file
            if room == "harness/published":
                assert not [name for name in names if name.startswith("harness.verdicts")], file
