"""Commands of README and docs, run as their reader would run them, in a copy of the repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from documented.commands import documented, elsewhere, filled

# Commands that end with exit code 2 and name what is missing: data of the hub, or the result of an earlier step.
LACKS = {
    "model.path=Qwen/Qwen2.5-3B-Instruct": "Qwen2.5-3B-Instruct",
    "scripts.fetch_data longbench --from hub": "THUDM/LongBench",
    "task=lm_eval/arc_easy,lm_eval/gsm8k": "arc_easy",
    "--tasks gsm8k": "gsm8k",
    "scripts.train_testbed export=true": "checkpoint",
}
# The same for commands shown without any setting.
LACKS_ALONE = {
    "python -m harness report": "paper=keydiff",
    "python -m harness figures": "paper=keydiff",
    "python -m harness profile": "out=<file>",
}
# Whole sweeps, of which one sample per cell is enough.
ONE_SAMPLE = ("+exp=ours/all", "+exp=leaderboard", "/table_", "keydiff/all scale=mini", "exp=quickstart")


def commands(of_readme: bool) -> pytest.MarkDecorator:
    """Every command of the README, or of the other pages, as parameters of a test."""
    chosen = [(page, each) for page, each in documented() if not elsewhere(each) and (page == "README.md") == of_readme]
    return pytest.mark.parametrize(("page", "command"), chosen, ids=[command for _, command in chosen])


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    alone = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(folder), "PATH": path}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, **alone}, capture_output=True, text=True, check=False
    )


def does_what_its_page_says(page: str, command: str, clone: Path, two_cells: Mapping[str, str]) -> None:
    """Run it, and fail with its output if it does not end as its page says."""
    whole = filled(command, **two_cells)
    if any(words in whole for words in ONE_SAMPLE) and " plan " not in whole:
        whole += " limit=1"
    done = run(clone, whole)
    assert "Traceback" not in done.stdout + done.stderr, f"{page}: {whole}\n{done.stderr}"
    missing = LACKS_ALONE.get(command) or next((name for words, name in LACKS.items() if words in command), None)
    if missing:
        assert done.returncode == 2, done.stdout
        assert missing in done.stdout + done.stderr
    else:
        assert done.returncode == 0, f"{page}: {whole}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
