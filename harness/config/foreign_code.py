"""What a configuration may import comes from the command line or the environment alone, never from a YAML file.

``trusted=[my_pkg]`` on the command line lets a policy be a class of that package. Hydra itself would import what a file
names as a callback or as a logging handler before we see the configuration, so that is refused first: a YAML file of a
stranger, an experiment in ``--config-dir`` say, can choose among what is here and set numbers; it runs no code and
reads nothing of the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from harness.config.compose import composing_errors
from harness.config.experiments import CONF
from harness.errors import UserError

OUR_LOGGING = ("logging.", "colorlog.")  # classes of Python's and Hydra's own logging
LOGGING = ("job_logging", "hydra_logging")


def refuse_foreign_code(words: Sequence[str]) -> None:
    """Raise `UserError` where composing these words of a command line would import what nobody trusted.

    Raises it too where our own configuration would be replaced, and for what cannot be composed
    (`harness.config.compose.composing_errors`).
    """
    folders, overrides = _split(words)
    added = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in folders)}]"] if folders else []
    with composing_errors(), initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", [*overrides, *added], RunMode.MULTIRUN)
    hydra = OmegaConf.to_container(config.hydra, resolve=False)
    assert isinstance(hydra, dict)
    if hydra.get("callbacks"):
        raise UserError(
            f"hydra.callbacks={hydra['callbacks']} would run code of its own: leave it out. A policy of yours is a "
            "class that policy=outside names (docs/add-a-policy.md)."
        )
    for group in LOGGING:
        for name in _classes(hydra.get(group)):
            if not name.startswith(OUR_LOGGING):
                raise UserError(f"hydra.{group} would run code of its own ({name}): leave it out.")
    check_trusted(config, overrides)
    _refuse_environment(OmegaConf.to_container(config, resolve=False), overrides)


def _refuse_environment(config: Any, overrides: Sequence[str]) -> None:
    """Raise `UserError` where a file reads the environment: its values would end in results, file names and pages."""
    for text in _texts(config):
        if "oc.env" in text and not any(text in each for each in overrides):
            raise UserError(
                f"A configuration file reads the environment ({text}), whose values would be stored with the results: "
                "write the value itself, or give the setting on the command line."
            )


def _texts(node: Any) -> Iterator[str]:
    """Every text of a configuration, at any depth, those of Hydra itself left out."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key != "hydra":
                yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node


def check_trusted(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise `UserError` where a file, and not the command line (``overrides``), says what is trusted."""
    if not config.get("trusted"):
        return
    typed = {each.key_or_group for each in OverridesParser.create().parse_overrides(list(overrides))}
    if "trusted" not in typed:
        raise UserError(
            f"A configuration file says trusted={list(config.trusted)}, which only the command line may: if you trust "
            f"that code, add trusted=[{','.join(map(str, config.trusted))}] to the command."
        )


def overrides_first(words: Sequence[str]) -> list[str]:
    """The words with all overrides before the options. Hydra reads none behind an option that follows one."""
    _, overrides = _split(words)
    return [*overrides, *(word for word in words if word not in overrides)]


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The folder that ``--config-dir`` names, however it is abbreviated, and the overrides in their order."""
    given, behind_flags = get_args_parser().parse_known_args(list(words))
    if given.config_path or given.config_name:
        raise UserError(
            "--config-path and --config-name would put another configuration in the place of kvreplica's own: add "
            "files of yours with --config-dir=<folder>."
        )
    overrides = [word for word in (*given.overrides, *behind_flags) if not word.startswith("-")]
    return [given.config_dir] if given.config_dir else [], overrides


def _classes(node: Any) -> Iterator[str]:
    """What a configuration of Python's logging would import: classes and factories, at any depth."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("()", "class"):
                yield str(value)
            else:
                yield from _classes(value)
    elif isinstance(node, list):
        for value in node:
            yield from _classes(value)
