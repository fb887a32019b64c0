"""Composes configurations with Hydra from overrides, and turns its errors into one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from harness.config.experiments import CONF, option_names
from harness.config.settings import check_config
from harness.errors import UserError
from policies import nearest

JobConfig = dict[str, Any]  # a configuration as plain dicts and lists, every reference replaced


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The configuration of ``python -m harness`` with these overrides. Raises `UserError` where there is none."""
    with composing_errors(), initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=list(overrides))


def resolved(config: DictConfig) -> JobConfig:
    """A composed configuration as plain dicts and lists, every reference replaced."""
    found: Any = OmegaConf.to_container(config, resolve=True)
    return found  # type: ignore[no-any-return]


def checked_config(config: DictConfig) -> JobConfig:
    """Resolved, as plain dicts and lists. Raises `UserError` for a setting of the wrong type."""
    with composing_errors():
        plain = resolved(config)
    check_config(plain)
    return plain


@contextmanager
def composing_errors() -> Iterator[None]:
    """Raise what goes wrong while Hydra composes as `UserError`.

    Any exception but OSError: only the user's words and files are at work here, and besides its own errors Hydra lets
    those of Python and YAML pass, for a word that is no option, a file with a tab or one that includes itself.
    """
    try:
        yield
    except MissingConfigException as error:  # which is an OSError
        raise UserError(_unknown_option(error)) from None  # the sentence says it all; Hydra's text is forty lines
    except HydraException as error:
        raise UserError(_unreadable(error)) from None
    except (UserError, OSError):
        raise
    except RecursionError:
        raise UserError(
            "A configuration file includes itself, or has an alias that does: check its defaults."
        ) from None
    except Exception as error:
        raise UserError(_unreadable(error)) from error


def _unknown_option(error: MissingConfigException) -> str:
    """Hydra's "could not find" as a sentence that offers the nearest names."""
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.partition("/")
    if not error.options or not name:
        return f"There is no configuration '{missing}'. Try: python -m harness list policies|tasks|models|exps"
    return f"There is no {group} called '{name}'. {nearest(name, option_names(group))}"


def _unreadable(error: Exception) -> str:
    """The complaint as one sentence: the word at fault, and what to write instead."""
    message = " ".join((str(error) or type(error).__name__).split())
    if isinstance(error, OverrideParseException):
        return _unparsable(error.override)
    if match := re.search(r"Could not override '([^'@]+)'", message):
        return _unknown_setting(match[1], error.__cause__)
    for pattern, sentence in HYDRA_SAYS:
        if match := re.search(pattern, message):
            return sentence.format(*match.groups())
    what = "The command line" if isinstance(error, HydraException) else "The configuration"
    return f"{what} could not be read: {message}"


# What Hydra's messages say, in our words. Their last lines offer ways out that would not lead to a run.
HYDRA_SAYS = (
    (
        r"Ambiguous value for argument '(([^=]+)=(.*?))' 1\.",
        "{0} is several values: add -m to run each of them, or write {1}=[{2}] for a list.",
    ),
    (r"Sweep parameters '(.+)' requires", "{0} is a sweep: add -m to run each of its values."),
    (
        r"An item is already at '(.+?)'\. Either remove \+ prefix: '(.+)' Or add",
        "{0} is a setting already: write {1}, without the +.",
    ),
    (r"Interpolation key '(.+?)' not found", "There is no setting '{0}', which a value refers to as ${{{0}}}."),
    (r"Could not delete from config\. '(.+)' does not exist", "There is no setting '{0}' to take out."),
    (r"Could not delete from config\. The value of '(.+)' is (.*) and not", "{0} is {1}: write ~{0} to take it out."),
    (r"Error merging override \+*(([^=]+)=?.*)", "{0} does not fit: {1} holds a value of another kind."),
    (r"Override (.+) looks like a config group", "{0} names a package, which only groups such as policy have."),
    (
        r"Config group override must be a string or a list",
        "A group such as policy or task was given something that is no name: write policy=keydiff, for example.",
    ),
    (r"force-add of config groups is not supported: '\+\+(.+)'", "Write {0}, without the ++."),
)


def _unparsable(word: str) -> str:
    """A word that Hydra's grammar cannot read."""
    name, equals, value = word.partition("=")
    if not equals and not word.startswith("~"):
        return f"'{word}' is not a setting: write key=value, for example budget=25%."
    if not re.fullmatch(r"(~|\+{1,2})?[\w./$-]+(@[\w.:]+)?", name):
        return f"'{word}' could not be read: '{name}' is not the name of a setting."
    if any(value.count(opening) != value.count(closing) for opening, closing in ("[]", "{}", "()")):
        return f"'{word}' could not be read: a bracket is not closed, or not opened."
    return needs_quotes(word)


def needs_quotes(word: str) -> str:
    """The sentence on a setting whose value has characters that mean something else."""
    name, _, value = word.partition("=")
    quoted = name + '="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"'{word}' could not be read: a text with such characters stands in two pairs of quotes, '{quoted}'."


def _unknown_setting(key: str, cause: BaseException | None) -> str:
    """A dotted key that no file has; ``cause``: OmegaConf's error, which holds the settings at the place it reached."""
    siblings = getattr(cause, "parent_node", None)
    known = {str(name) for name in siblings} if isinstance(siblings, DictConfig) else set()
    reached = str(getattr(cause, "full_key", "") or key)
    if reached in ("policy._target_", "policy.entry_point"):
        return (
            f"{reached} is a setting of policy=outside alone: run your policy in a command of its own, or beside "
            'others from Python, run(policy=["keydiff", MyPolicy()]).'
        )
    if "." not in reached:
        known |= {"exp", "launcher", "logger", "model", "policy", "scale", "task"}
        known -= {"hydra"}
    name = reached.rpartition(".")[2]
    return f"There is no setting '{reached}'. {nearest(name, known)}" if known else f"There is no setting '{key}' here."
