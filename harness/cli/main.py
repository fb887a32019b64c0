"""``python -m harness <command> …``: one command line. Without a command's name the words go to ``run``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from harness.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from harness.config.compose import JobConfig

QUICK_START = "+exp=quickstart"
COMPLETION = ("-sc", "--shell-completion", "--shell_completion")  # Hydra's: install=bash, query=bash, uninstall=bash
COMMANDS = {
    "run": "compute the cells of a configuration or a sweep (the default)",
    "plan": "say what a sweep will feed, hold and take, before anything runs",
    "list": "list policies, tasks, models or exps",
    "report": "write a paper's tables, figures and claims beside ours",
    "claims": "print what became of each claim of a paper",
    "figures": "compute the diagnostics that a paper's figures show, and draw them",
    "site": "build the results site",
    "diagnose": "look inside one cell",
    "survivors": "store which tokens each head keeps, for the site's viewer",
    "profile": "measure a model's heads for HeadKV",
    "store": "look after a results folder: status, verify, export, pack, gc, rebuild",
    "cells": "show what a cell is made of, or why two cells differ",
    "support": "write docs/support.md: what works with what",
    "doctor": "say what will and will not work on this machine",
    "lm_eval": "run lm-evaluation-harness with our engine as its model",
    "worker": "be one worker of a sweep; launchers start this",
}

WITHOUT_TORCH = ("doctor", "store", "cells")  # doctor must not import what may be missing; the others are fast


def main() -> None:
    """The command line. Exit code 0 = done, 1 = damage was found, 2 = the user can mend it, 130 = Ctrl-C."""
    words = sys.argv[1:] or ["run", QUICK_START]
    if words[0] in COMPLETION:
        if "COMP_LINE" not in os.environ and words[1:] and words[1].startswith("query="):
            print("query= is what a shell asks at every tab: -sc install=bash sets that up.", file=sys.stderr)
            sys.exit(2)
        return _compose_with_hydra(words, lambda jobs: None)  # without torch: a shell waits for it at every tab
    if words[0] in ("-h", "--help", "help"):
        with suppress(BrokenPipeError):  # the reader (head) has closed the pipe
            print(_help(), flush=True)
        return
    command, rest = (words[0], words[1:]) if words[0] in COMMANDS else ("run", words)
    if command in WITHOUT_TORCH:
        sys.exit(importlib.import_module(f"harness.cli.{command}").main(rest))
    from harness.cli.error_messages import errors_in_plain_words

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would print, and we say it in one sentence
    with errors_in_plain_words():
        if command == "run" and rest and _is_misspelled(rest[0]):
            raise UserError(f"There is no command '{rest[0]}'. {_nearest_command(rest[0])}")
        if code := _called(command, rest):
            sys.exit(code)


def _called(command: str, words: Sequence[str]) -> int | None:
    if command == "list":
        from harness.config.experiments import listing

        if words[1:]:
            raise UserError(f"list shows one list at a time: python -m harness list {words[0]}")
        print(listing(words[0] if words else ""))
    elif command == "plan":
        _compose_with_hydra(words or [QUICK_START], _plan)
    elif command == "run":
        _compose_with_hydra(words or [QUICK_START], _run)
    else:
        code: int | None = importlib.import_module(f"harness.cli.{command}").main(words)
        return code
    return 0


# What runs and plans import takes seconds, for which a mistake in the command line need not wait.


def _run(jobs: Sequence[JobConfig]) -> None:
    from harness.config.settings import check_config

    check_config(jobs[0])
    importlib.import_module("harness.cli.run").sweep(jobs)


def _plan(jobs: Sequence[JobConfig]) -> None:
    importlib.import_module("harness.cli.plan").show(jobs)


class GatheredJobs:
    """The jobs of a command: Hydra calls it with that of a single run, our launcher adds those of a sweep."""

    def __init__(self) -> None:
        self.single: list[DictConfig] = []
        self.swept: list[JobConfig] = []

    def __call__(self, config: DictConfig) -> None:
        """Keep it as it is: what goes wrong inside of Hydra's call is announced in Hydra's words too."""
        self.single.append(config)

    def all(self) -> list[JobConfig]:
        """Every job, its references replaced."""
        from harness.config.compose import resolved

        return [*map(resolved, self.single), *self.swept]


def _compose_with_hydra(words: Sequence[str], use: Callable[[Sequence[JobConfig]], None]) -> None:
    """Hydra composes, one job or all jobs of ``-m``; they are used here together, when Hydra is done."""
    import hydra
    from hydra.core.plugins import Plugins

    from harness.config.experiments import CONF
    from hydra_plugins.kvreplica_launcher import JobSweeper, SweepLauncher

    sys.argv[1:] = words  # where Hydra reads them
    for plugin in (SweepLauncher, JobSweeper):
        Plugins.instance().register(plugin)  # Hydra finds them by itself only where this folder is on sys.path
    gathered = GatheredJobs()
    composed = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(gathered)
    if words[0] in COMPLETION:
        composed()
        return
    from harness.config.compose import composing_errors  # imports torch, for which a shell would wait
    from harness.config.foreign_code import overrides_first, refuse_foreign_code

    refuse_foreign_code(words)
    sys.argv[1:] = overrides_first(words)
    with composing_errors():
        composed()
        jobs = gathered.all()
    if jobs:
        use(jobs)


def _is_misspelled(word: str) -> bool:
    """Whether a first word is meant as a command: neither an option nor an override."""
    return "=" not in word and not word.startswith(("-", "+", "~"))


def _nearest_command(word: str) -> str:
    close = get_close_matches(word, COMMANDS, 3)
    return f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(COMMANDS)}."


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m harness [command] [key=value …]",
            "",
            *lines,
            "",
            "python -m harness <command> --help says more; python -m harness --cfg job shows the configuration.",
        ]
    )
