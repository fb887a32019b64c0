"""Every command that README and docs show is run as its reader would run it, in a copy of the repository.

Part of ``make test-all``, not of ``make test``: together they take about a quarter of an hour.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from documented.commands import PAGES, ROOT, documented, elsewhere, filled
from lm_eval_examples import write_tasks

pytestmark = pytest.mark.whole

COMMANDS = [(page, command) for page, command in documented() if not elsewhere(command)]
# Ends with a sentence and exit code 2 where nothing can be fetched; the sentence names what is missing.
NEEDS_THE_HUB = {
    "model.path=Qwen/Qwen2.5-3B-Instruct": "Qwen2.5-3B-Instruct",
    "scripts.fetch_data longbench --from hub": "THUDM/LongBench",
    "task=lm_eval/arc_easy,lm_eval/gsm8k": "arc_easy",
    "--tasks gsm8k": "gsm8k",
}
# Whole sweeps for which one sample of each cell says the same.
ONE_SAMPLE = ("+exp=ours/all", "/table_", "keydiff/all scale=mini", "exp=quickstart")
NOT_COPIED = (".git", ".venv", "results/runs", "results/reports", "results/site", "__pycache__", ".*_cache")


@pytest.fixture(scope="session")
def clone(tmp_path_factory) -> Path:
    """A copy of the repository with its environment, and what its pages let the reader write."""
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
    """The ids of two cells with rows, for commands that speak of cells."""
    done = run(clone, "python -m harness -m policy=sink,keydiff budget=25% limit=1 references=[]")
    assert done.returncode == 0, done.stderr
    first, second = sorted(path.name for path in (clone / "results" / "runs").iterdir() if path.name[0] != ".")[:2]
    return {"first": first[:6], "second": second[:6]}


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    alone = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(folder), "PATH": path}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, **alone}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[command for _, command in COMMANDS])
def test_it_does_what_its_page_says(page, command, clone, two_cells):
    whole = filled(command, **two_cells)
    if any(words in whole for words in ONE_SAMPLE) and " plan " not in whole:
        whole += " limit=1"
    done = run(clone, whole)
    assert "Traceback" not in done.stdout + done.stderr, f"{page}: {whole}\n{done.stderr}"
    missing = next((name for words, name in NEEDS_THE_HUB.items() if words in command), None)
    if missing:
        assert done.returncode == 2, done.stdout
        assert missing in done.stdout + done.stderr
    else:
        assert done.returncode == 0, f"{page}: {whole}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_commands_are_found_on_most_pages():
    assert len({page for page, _ in documented()}) > len(PAGES) / 2
