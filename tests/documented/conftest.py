"""A copy of the repository in which commands may write anything."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from documented.commands import ROOT
from documented.running import run
from lm_eval_examples import write_tasks

NOT_COPIED = (".git", ".venv", "results/runs", "results/reports", "results/site", "__pycache__", ".*_cache")


@pytest.fixture(scope="session")
def clone(tmp_path_factory) -> Path:
    """A copy of the repository with its environment and the files that its pages ask the reader to write."""
    folder = tmp_path_factory.mktemp("documented") / "kvreplica"
    shutil.copytree(ROOT, folder, ignore=_left_out)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    page = (ROOT / "docs" / "add-a-policy.md").read_text()
    (folder / "my_pkg.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    (folder / "my_tasks").mkdir()
    write_tasks(folder / "my_tasks")
    return folder


def _left_out(folder: str, names: list[str]) -> set[str]:
    inside = Path(folder).relative_to(ROOT)
    return {name for name in names if any((inside / name).match(pattern) for pattern in NOT_COPIED)}


@pytest.fixture(scope="session")
def two_cells(clone: Path) -> dict[str, str]:
    """The ids of two cells with rows, for commands about cells."""
    done = run(clone, "python -m harness -m policy=sink,keydiff budget=25% limit=1 references=[]")
    assert done.returncode == 0, done.stderr
    first, second = sorted(path.name for path in (clone / "results" / "runs").iterdir() if path.name[0] != ".")[:2]
    return {"first": first[:6], "second": second[:6]}
