"""Every command of the README is one that this version understands; `make test` and `make demo` exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.config.cell import Cell
from harness.config.experiments import CONF, listing

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = re.findall(r"python -m harness ([^`#\n]*)", README)
LINKS = re.findall(r"\]\(([^)#]+)\)", README)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_composes_to_cells(command):
    words = shlex.split(command)
    if words[0] == "list":
        assert listing(words[1])
        return
    overrides = [word for word in words if "=" in word]
    jobs: list[list[str]] = [[]]
    for override in overrides:
        key, _, values = override.partition("=")
        choices = values.split(",") if "-m" in words else [values]
        jobs = [[*job, f"{key}={choice}"] for job in jobs for choice in choices]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        for job in jobs:
            config = compose("config", overrides=job)
            Cell.parse(OmegaConf.to_container(config, resolve=True))


@pytest.mark.parametrize("target", re.findall(r"make ([a-z-]+)", README))
def test_the_target_exists(target):
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    pattern = target.partition("-")[0] + "-%"
    assert re.search(rf"^({re.escape(target)}|{re.escape(pattern)}):", makefile, re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(LINKS)))
def test_the_link_leads_somewhere(link):
    assert (Path(__file__).parent.parent / link).exists()
