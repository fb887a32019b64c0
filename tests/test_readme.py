"""Every command of the README is one that this version understands, and what README and docs/code.md name exists."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
from pathlib import Path

import pytest
from composed import composed
from omegaconf import OmegaConf

from harness.cli.main import COMMANDS as KNOWN
from harness.config.cell import Cell
from harness.config.experiments import listing

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = re.findall(r"python -m harness ([^`#\n]*)", README)
LINKS = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https://")]
CODE = (Path(__file__).parent.parent / "docs" / "code.md").read_text()


def settings_of(command):
    """The names of the settings that a command has beside those of a cell."""
    module = importlib.import_module(f"harness.cli.{command}")
    kinds = [
        each for each in vars(module).values() if dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    ]
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_is_understood(command):
    words = shlex.split(command)
    if words[0] == "list":
        assert listing(words[1])
    elif words[0] in ("store", "cells"):
        assert importlib.import_module(f"harness.cli.{words[0]}")._options(words[1:])
    elif words[0] in set(KNOWN) - {"run", "plan"}:
        assert {word.partition("=")[0] for word in words[1:]} <= settings_of(words[0])
    else:
        assert words[0] in ("plan", "…") or words[0].startswith(("+", "-")) or "=" in words[0]
        assert_it_composes_to_cells(words)


def assert_it_composes_to_cells(words):
    overrides = [word for word in words if "=" in word]
    jobs: list[list[str]] = [[]]
    for override in overrides:
        key, _, values = override.partition("=")
        choices = values.split(",") if "-m" in words else [values]
        jobs = [[*job, f"{key}={choice}"] for job in jobs for choice in choices]
    for job in jobs:
        Cell.parse(OmegaConf.to_container(composed(*job), resolve=True))


def test_it_is_short():
    assert len(README.splitlines()) <= 120


@pytest.mark.parametrize("target", re.findall(r"make ([a-z-]+)", README))
def test_the_target_exists(target):
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    pattern = target.partition("-")[0] + "-%"
    assert re.search(rf"^({re.escape(target)}|{re.escape(pattern)}):", makefile, re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(LINKS)))
def test_the_link_leads_somewhere(link):
    assert (Path(__file__).parent.parent / link).exists()


ROOM = re.compile(r"^\| (`[\w/]+/`(?:, `[\w/]+/`)*) \|.*\| ([^|]+) \|$", re.MULTILINE)


@pytest.mark.parametrize(("folders", "files"), ROOM.findall(CODE))
def test_files_to_start_reading_at_exist(folders, files):
    root = Path(__file__).parent.parent
    places = [root / folder for folder in re.findall(r"`([^`]+)`", folders)]
    for file in re.findall(r"`([^`]+)`", files):
        assert any((place / file).exists() for place in places), file


NAMED_IN_FILE = re.compile(r"`(\w+(?:\.\w+)?)` (?:\(|in\s+)`([\w/]+\.py)`")


@pytest.mark.parametrize(("name", "file"), NAMED_IN_FILE.findall(CODE))
def test_what_the_page_of_the_code_points_to_is_in_its_file(name, file):
    text = (Path(__file__).parent.parent / file).read_text()
    for part in name.split("."):
        assert re.search(rf"^ *(?:class|def) {part}\b", text, re.MULTILINE), name
