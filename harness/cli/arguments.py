"""``key=value`` settings of the commands beside ``run``: one parser, typed by a dataclass for each command."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.config.compose import needs_quotes
from harness.config.type_check import check_names
from harness.errors import UserError
from policies import nearest

Settings = TypeVar("Settings")
Choice = TypeVar("Choice", bound=str)


def parse(kind: type[Settings], words: Sequence[str], command: str, description: str | None) -> Settings:
    """All words as settings of a command. Raises `UserError` for an unknown setting or a value of the wrong type."""
    own, others = parse_known(kind, words, command, description)
    check_names([word.partition("=")[0] for word in others], _fields(kind))
    return own


def parse_known(
    kind: type[Settings], words: Sequence[str], command: str, description: str | None
) -> tuple[Settings, list[str]]:
    """The settings of this command, and all other words, which are Hydra overrides of the sweep's configuration."""
    parser = argparse.ArgumentParser(
        prog=f"python -m harness {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    fields = _fields(kind)
    parser.add_argument("settings", nargs="*", metavar="key=value", help=f"of this command: {', '.join(fields)}")
    given = parser.parse_args(list(words)).settings
    for word in given:
        if "=" not in word:
            raise UserError(f"'{word}' is not a setting: write key=value, for example {next(iter(fields))}=….")
    own = [word for word in given if word.partition("=")[0] in fields]
    read = [_read(word) for word in own]
    try:
        merged = OmegaConf.merge(OmegaConf.structured(kind), *read)
        return OmegaConf.to_object(merged), [word for word in given if word not in own]  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise UserError(f"The settings of {command} could not be read: {str(error).splitlines()[0]}") from error


def _read(word: str) -> DictConfig:
    """One setting. Raises `UserError` for a value that YAML cannot read."""
    try:
        return OmegaConf.from_dotlist([word])
    except YAMLError as error:
        raise UserError(needs_quotes(word)) from error


def check_choice(setting: str, value: str, choices: Collection[Choice]) -> Choice:
    """The choice of that name. Raises `UserError` with the nearest one where there is none."""
    for choice in choices:
        if choice == value:
            return choice
    raise UserError(f"There is no {setting} called '{value}'. {nearest(value, choices)}")


def check_results_dir(folder: str) -> Path:
    """The folder. Raises `UserError` where there is none of that name."""
    if not Path(folder).is_dir():
        raise UserError(f"There is no folder {folder}: give the one that was written to, results_dir=<folder>.")
    return Path(folder)


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
