"""The commands that README and docs show, and how a test runs each: unchanged, or with placeholders filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("python -m ", "kvreplica ", "make ", "ray ", "wandb ", "pip ")

FENCED = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^ {4}((?:python -m|kvreplica|make|ray|wandb) (?:[^\\\n]|\\\n)*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
# Placeholders of the pages, and what the tests put in their place.
FILLED = {
    "/my/folder": "harness/testbed",
    "<a> <b>": "{first} {second}",
    "3f2a 91bc": "{first} {second}",
    "3f2a": "{first}",
    "+exp=<paper>/<item>": "+exp=keydiff/table_5",
    "paper=<paper>": "paper=keydiff",
    "model=my-model kind=r out=<file>": "model=testbed kind=r out=profile.json",
    "task.task=my_task": "task.task=needle_answers",
    "first:6379": "local",
    "/shared/results": "results",
}

# Commands that are not run here, with the reason: another test runs them, or only a user can.
ELSEWHERE = {
    "make test": "is what runs this",
    "make bench": "ten minutes of timing; tests/scripts runs its parts on tiny shapes",
    "make reproduce": "whole papers: tests/test_reference_result.py holds what it gave",
    "make leaderboard": "a sweep of an hour; its experiment runs with one sample",
    "make serve": "does not end; tests/results_site serves the same folder",
    "python -m scripts.torture": "minutes of kills; tests/workers runs it with two",
    "python -m scripts.bench peer": "needs another environment; tests/scripts has its parts",
    "python -m scripts.efficiency": "is make efficiency",
    "ray start": "needs machines; tests/workers starts two nodes on one",
    "kvreplica policy=cao<Tab>": "is a key; tests/cli/test_doctor_and_completion.py presses it",
    "wandb ": "needs an account; tests/wandb_logger reads the offline folder back",
    "pip install": "is the Makefile's",
    "python -m harness +exp=quickstart launcher=ray": "tests/workers/test_ray.py",
}


def documented() -> Iterator[tuple[str, str]]:
    """(page, command) of every command shown, without comments; each once."""
    seen = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        lines += [line.replace("\\\n", " ") for line in INDENTED.findall(text)]
        lines += [" ".join(words.split()) for words in INLINE.findall(FENCED.sub("", text))]
        for line in lines:
            command = " ".join(line.partition(" # ")[0].split())
            if command.startswith(PROGRAMS) and command not in seen and "…" not in command:
                seen.add(command)
                yield page.relative_to(ROOT).as_posix(), command


def elsewhere(command: str) -> str:
    """Why a command is not run here, or an empty string."""
    return next((why for start, why in ELSEWHERE.items() if command.startswith(start)), "")


def filled(command: str, **values: str) -> str:
    """The command with the placeholders of its page filled in."""
    for left_open, given in FILLED.items():
        command = command.replace(left_open, given)
    return command.format(**values) if values else command
