"""Published numbers, claims and verdicts are read without a model: their modules do not reach into the engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "harness" / "papers"
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
PUBLISHED = ("published", "claim_ledger", "table_layouts")
VERDICTS = ("cell_index", "paired_bootstrap", "claim_cases", "claim_tests", "claim_evidence", "claim_verdicts")


@pytest.mark.parametrize("module", [*PUBLISHED, *VERDICTS])
def test_no_module_imports_what_it_may_not(module):
    file = PAPERS / f"{module}.py"
    for node in ast.walk(ast.parse(file.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [name for name in names if name.startswith(FOREIGN)], file
        if module in PUBLISHED:
            assert not [name for name in names if name.startswith(tuple(f"harness.papers.{v}" for v in VERDICTS))], file
