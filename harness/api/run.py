"""``run``: cells from Python, into the same store that the command line writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
from rich.markup import escape
from transformers import PreTrainedModel

from harness.api.save_model import saved
from harness.config import plugins
from harness.config.cell import as_user_errors
from harness.config.compose import compose_config, composing_errors
from harness.config.experiments import default_settings
from harness.config.jobs import sweep_jobs
from harness.config.model_files import GGUF, model_folder
from harness.config.settings import check_config
from harness.config.type_check import check_names, check_value
from harness.console import say
from harness.errors import UserError
from harness.integrations.loggers import logger_of
from harness.report.rows import invalid_messages
from harness.runner.sweep import run_sweep
from policies import Policy
from policies.scorer import Scorer

ModelLike: TypeAlias = str | PreTrainedModel  # a configuration's name, a folder or GGUF file, or a loaded model
PolicyLike: TypeAlias = str | Policy | Scorer  # the name of a preset, or an object: a policy, or what ranks slots
AXES = ("model", "policy", "budget", "task")


@as_user_errors()
def run(
    model: ModelLike | Sequence[ModelLike] = "testbed",
    policy: PolicyLike | Sequence[PolicyLike] = "keydiff",
    budget: str | float | Sequence[str | float] = "25%",
    task: str | Sequence[str] = "niah",
    *,
    tokenizer: Any = None,
    results_dir: str | Path = "results",
    overrides: Sequence[str] = (),
    **settings: Any,
) -> pd.DataFrame:
    """Run cells and return their rows: every combination of the models, policies, budgets and tasks that are given.

    Each of the four is one value or a list. ``model`` takes names, paths and transformers models; a model object, which
    comes with its ``tokenizer``, is saved once under ``<results_dir>/models``, because rows have to say which weights
    they are of. ``policy`` takes names of presets and objects of your own: a scorer (with
    ``score``) or a `policies.Policy`, as frozen dataclasses. ``budget`` is in slots per layer and KV head (``256``,
    ``"4k"``) or a share of the prompt (``"25%"``). ``settings`` are those of ``conf/config.yaml`` (``prompt``,
    ``block_size`` in tokens, ``limit`` in samples per cell, ``references``, ``seed``, …); ``overrides`` are further
    ones as on the command line (``["task.lengths=[512]"]``).

    One row per cell, sample and metric, joined with its cell; columns: docs/results-schema.md. Rows are stored under
    ``<results_dir>/runs``, and what lies there already is not computed again. Cells that cannot be run are printed with
    the reason, the others run. While it runs a bar shows progress; without a terminal or notebook, a line now and then.

    Raises `UserError` for unknown names and settings, and where no cell can be run. KeyboardInterrupt keeps what was
    finished.
    """
    check_value(str | Path, results_dir, "results_dir")
    check_value(Sequence[str], overrides, "overrides")
    objects = [each for each in _listed(policy) if not isinstance(each, str)]
    if objects and (name := _launcher(overrides)) not in ("none", ""):
        raise UserError(
            f"launcher={name} starts other processes, which cannot have {type(objects[0]).__name__} of this one: leave "
            "the launcher out, or put the class into a file and use policy=outside (docs/add-a-policy.md)."
        )
    beside = [*(f"{key}={_word(value)}" for key, value in _known(settings).items()), *overrides]
    beside.append(f"results_dir={_word(str(results_dir))}")
    axes = [
        [_model(each, tokenizer, Path(results_dir)) for each in _listed(model)],
        [_policy(each) for each in _listed(policy)],
        [[f"budget={_word(each)}"] for each in _listed(budget)],
        [[f"task={each}"] for each in _listed(task)],
    ]
    jobs = [[*itertools.chain(*point), *beside] for point in itertools.product(*axes)]
    with composing_errors():
        configs = list(sweep_jobs(jobs, compose_config))
    check_config(configs[0])
    logger = logger_of(configs[0]["logger"], Path(results_dir), "")
    try:
        done = run_sweep(configs, logger)
    except KeyboardInterrupt:
        say("Stopped. What was finished is kept: run the same again to go on from there.")
        raise
    rows = done.finished.rows()
    logger.finished(rows)
    for sentence in invalid_messages(rows):
        say(f"[bold red]{escape(sentence)}[/]")
    return rows


def _listed(value: Any) -> list[Any]:
    """One value or several as a list. Raises `UserError` for none."""
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    values = list(value) if several else [value]
    if not values:
        raise UserError("An empty list leaves nothing to run: give at least one model, policy, budget and task.")
    return values


def _model(given: Any, tokenizer: Any, results_dir: Path) -> list[str]:
    """A configuration's name, the path of a folder or GGUF file that holds a model, or a model object."""
    if not isinstance(given, str):
        settings = saved(given, tokenizer, results_dir)
        return ["model=hf", *(f"model.{key}={_word(value)}" for key, value in settings.items())]
    if given.endswith(GGUF) or ("/" in given and model_folder(given) is not None):
        return ["model=hf", f"model.path={_word(given)}"]
    return [f"model={given}"]


def _policy(value: Any) -> list[str]:
    if isinstance(value, str):
        return [f"policy={value}"]
    named = plugins.register_object(value)
    return ["policy=outside", f"++policy.name={_word(named['name'])}", f"++policy.given={_word(named['given'])}"]


def _known(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {str(key) for key in default_settings()} - {"defaults", "hydra", *AXES}
    check_names(settings, known)
    return settings


def _launcher(overrides: Sequence[str]) -> str:
    chosen = [each.partition("=")[2] for each in overrides if each.partition("=")[0].lstrip("+") == "launcher"]
    return chosen[-1] if chosen else ""


def _word(value: Any) -> str:
    """A value in Hydra's grammar. Texts are quoted, or some of them would be read as numbers."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
