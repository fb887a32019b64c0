"""Tasks of the package lm-eval as it defines them: found by name or file, loaded from this machine only."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from yaml import YAMLError

from tasks.base import TaskError

FEWSHOT_SEED = 1234  # lm-eval's own default
NEW_TOKENS = 256  # where a task states no ``max_gen_toks``; lm-eval's own default
WITHOUT_EFFECT = {"do_sample", "temperature", "top_p", "top_k"}  # once decoding is greedy


@dataclass(frozen=True)
class GenerationSettings:
    """How the text of a task is generated, greedily. ``until``: texts, any of which ends the answer."""

    until: tuple[str, ...]
    max_new_tokens: int  # tokens

    @staticmethod
    def parse(task: str, settings: Mapping[str, Any]) -> GenerationSettings:
        """From lm-eval's ``generation_kwargs``. Raises `TaskError` for anything but greedy decoding."""
        from lm_eval.models.utils import normalize_gen_kwargs

        settings = dict(normalize_gen_kwargs(dict(settings), NEW_TOKENS))
        until = tuple(text for text in settings.pop("until") if text)
        new_tokens = settings.pop("max_gen_toks")
        others = sorted(settings.keys() - WITHOUT_EFFECT)
        if settings["do_sample"] or others:
            asked = ", ".join(others) or "sampling (do_sample, temperature)"
            raise TaskError(
                f"lm-eval task '{task}' asks for {asked}, and this engine decodes greedily: choose a task without it, "
                "or override it where you run lm_eval (--gen_kwargs do_sample=False,temperature=0)."
            )
        return GenerationSettings(until, new_tokens)


@cache
def load(name: str, include_path: str | None, num_fewshot: int | None) -> Any:
    """lm-eval's own task object, its data included; ``name`` may be the path of a task's YAML file.

    Raises `TaskError` for names that lm-eval does not know, groups, tasks that this project cannot run, and data
    that is not on this machine (nothing is fetched).
    """
    manager = _manager(name, include_path)
    if name in set(manager.all_groups) | set(manager.all_tags):
        raise TaskError(
            f"'{name}' is a group of lm-eval tasks, and a cell has one task: give one of its members, or several as a "
            f"sweep (-m task.task=a,b); 'python -m harness lm_eval ls tasks' lists them."
        )
    with _offline():
        try:
            (task,) = manager.load(name)["tasks"].values()
        except ImportError as error:
            raise TaskError(
                f"lm-eval task '{name}' needs a package that is not installed ({error}): install what its README in "
                "lm_eval/tasks names."
            ) from error
        except Exception as error:  # of readers, parsers and templates of several packages: all mean the same here
            raise TaskError(_unavailable(manager, name, error)) from error
    _refuse_what_needs_more(name, task)
    if num_fewshot is not None:
        task.set_config(key="num_fewshot", value=num_fewshot)
    return task


def _manager(name: str, include_path: str | None) -> Any:
    """The task manager that knows ``name``: of the user's folder if that has it, else of all that lm-eval ships."""
    if include_path is not None and not Path(include_path).is_dir():
        raise TaskError(
            f"include_path={include_path} is no folder: give the folder that holds your lm-eval task files."
        )
    own = _index(include_path, False)
    if name in own.all_tasks or (name.endswith(".yaml") and Path(name).is_file()):
        return own
    if (folder := _shipped_folder(name)) is not None and name in (found := _index(folder, False)).all_tasks:
        return found
    everything = _index(include_path, True)
    if name not in everything.all_tasks:
        close = difflib.get_close_matches(name, everything.all_tasks, n=3, cutoff=0.6)
        advice = f"Did you mean {' or '.join(close)}?" if close else "'python -m harness lm_eval ls tasks' lists them."
        raise TaskError(f"lm-eval has no task '{name}'. {advice}")
    return everything


@cache
def _index(include_path: str | None, shipped: bool) -> Any:
    return _lm_eval_tasks().TaskManager(include_path=include_path, include_defaults=shipped)


def _shipped_folder(name: str) -> str | None:
    """The folder of the file in which lm-eval defines ``name``: indexing all of its 14,000 files takes 12 seconds."""
    defines = re.compile(rf"^['\"]?(task|group)['\"]?: *(['\"]?){re.escape(name)}\2 *(#.*)?$", re.MULTILINE)
    files = sorted(Path(_lm_eval_tasks().__file__).parent.glob("**/*.yaml"), key=Path.as_posix)  # the first one counts
    return next((str(file.parent) for file in files if defines.search(file.read_text("utf-8", "replace"))), None)


def _lm_eval_tasks() -> Any:
    try:
        import lm_eval.tasks
    except ImportError as error:
        raise TaskError(
            f"Tasks of lm-evaluation-harness need the package lm-eval ({error}): pip install -e '.[lm-eval]'."
        ) from error
    return lm_eval.tasks


def _refuse_what_needs_more(name: str, task: Any) -> None:
    if getattr(task, "UNSAFE_CODE", False):
        raise TaskError(
            f"lm-eval task '{name}' executes what the model wrote, which this project never does: run it in a sandbox "
            "with 'python -m harness lm_eval --model kvreplica --confirm_run_unsafe_code …'."
        )
    if getattr(task, "MULTIMODAL", False):
        raise TaskError(
            f"lm-eval task '{name}' shows images or sound, and this engine reads text only: choose another."
        )


def _unavailable(manager: Any, name: str, error: Exception) -> str:
    """Which part of a task is missing or broken, and what to do."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    settings = _settings(manager, name)
    path, subset = settings.get("dataset_path"), settings.get("dataset_name")
    if not path or settings.get("dataset_kwargs", {}).get("data_files"):
        return f"lm-eval task '{name}' cannot be loaded: {reason}. Correct its YAML file or the files that it names."
    call = f"datasets.load_dataset('{path}'" + (f", '{subset}'" if subset else "") + ")"
    return (
        f"The data set {path} of lm-eval task '{name}' is not on this machine ({reason}): fetch it with "
        f'python -c "import datasets; {call}".'
    )


def _settings(manager: Any, name: str) -> Mapping[str, Any]:
    """A task's YAML file as plain data, whether or not its data is there; empty where the file cannot be read."""
    from lm_eval.tasks._yaml_loader import load_yaml

    file = manager.task_index[name].yaml_path if name in manager.task_index else Path(name)
    try:
        return dict(load_yaml(file, resolve_func=False))
    except (OSError, ValueError, YAMLError):
        return {}


@contextmanager
def _offline() -> Iterator[None]:
    """Within it, neither the hub's library nor `datasets` uses the network."""
    import datasets
    import huggingface_hub

    switches = (datasets.config, "HF_HUB_OFFLINE"), (huggingface_hub.constants, "HF_HUB_OFFLINE")
    before = [getattr(module, name) for module, name in switches]
    for module, name in switches:
        setattr(module, name, True)
    try:
        yield
    finally:
        for (module, name), value in zip(switches, before, strict=True):
            setattr(module, name, value)
