"""``python -m harness run``: run the cells of one command as one sweep; a table and a page at its end."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from rich.markup import escape

from harness.config.cell import USER_ERRORS, Cell
from harness.config.experiments import CONF
from harness.console import say
from harness.errors import MissingInputError, UserError
from harness.integrations.loggers import logger_of
from harness.report.looks import is_baseline
from harness.report.rows import invalid_messages
from harness.report.summary import nothing_evicted_messages, summary_table
from harness.report.summary_tables import show_summary
from harness.runner.plan import RunResult
from harness.runner.sweep import run_sweep

CHOSEN_BY_SCALE = re.compile(r"\+*(scale|model(\.\w+)*|data|task\.data)=")  # settings that scale=mini makes
CHOSEN_BY_MODEL = re.compile(r"\+*(scale|model(\.\w+)*)=")
SMALL_MODEL = "smollm2-135m"  # what runs on any machine once it is fetched


def sweep(configs: Sequence[Mapping[str, Any]]) -> None:
    """Run all jobs of one command together. Raises the errors of `harness.config.cell.USER_ERRORS`.

    Cells that cannot be run as asked are named before and after the others have run.
    """
    first = configs[0]
    name, results_dir = first["name"], Path(first["results_dir"])
    logger = logger_of(first["logger"], results_dir, name)
    try:
        done = run_sweep(configs, logger)
    except MissingInputError as error:
        raise UserError(f"{error}\n{_runs_now(sys.argv[1:], configs)}") from error
    rows = done.finished.rows()
    if first["summary"]:
        _report(rows, name, results_dir, done.notes)
    _say_result(done.finished)
    if name_kept := _name_kept(sys.argv[1:], configs, rows):
        say(escape(name_kept))
    logger.finished(rows)
    if problems := [*done.refused, *invalid_messages(rows)]:
        raise UserError(" ".join(problems))


def _runs_now(words: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> str:
    """The same command on what is here: a small real model where there is data for it, else what is installed."""
    here = _tasks_with_data(configs)
    shipped = _command(words, CHOSEN_BY_SCALE, "scale=mini")
    path = f"What runs now, on synthetic rows and the shipped model, as a test of the path: {shipped}"
    if not here or configs[0]["model"]["name"] == SMALL_MODEL:
        return path
    small: Any = OmegaConf.load(CONF / "model" / f"{SMALL_MODEL}.yaml")
    pretrained = _command(words, CHOSEN_BY_MODEL, f"model={SMALL_MODEL}")
    tasks = ", ".join(here[:3]) + (f" and {len(here) - 3} more" if len(here) > 3 else "")
    if Path(small.path).is_dir():
        return f"What runs now, on a small pretrained model and the data that is here ({tasks}): {pretrained}"
    return f"{path}; and on a small pretrained model after '{small.fetch}' (98 MB), on {tasks}: {pretrained}"


def _command(words: Sequence[str], replaced: re.Pattern[str], by: str) -> str:
    """What was typed, with one setting for those that it replaces."""
    return shlex.join(["python", "-m", "harness", *(word for word in words if not replaced.match(word)), by])


def _tasks_with_data(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels of the tasks whose data is on this machine."""
    found: dict[str, None] = {}
    for config in configs:
        try:
            found[Cell.parse(config).task.label] = None
        except USER_ERRORS:
            continue
    return list(found)


def _report(rows: pd.DataFrame, name: str, results_dir: Path, notes: Sequence[str]) -> None:
    from harness.report.page import write_report  # with matplotlib: a second, for which the samples need not wait

    page = results_dir / "reports" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    summary = summary_table(rows)
    kept_all = nothing_evicted_messages(summary)
    write_report(rows, page, title=name, notes=[*notes, *kept_all])
    show_summary(summary)
    for sentence in kept_all:
        say(escape(sentence))
    say(f"Report: {page}")


def _name_kept(words: Sequence[str], configs: Sequence[Mapping[str, Any]], rows: pd.DataFrame) -> str:
    """The name of a policy's rows where its settings were typed without a name, or with one that they do not have.

    A name is no part of a cell's identity: the first one that its settings ran under stays with their samples.
    """
    typed = [name for word in words if (name := word.partition("=")[0].lstrip("+")).startswith("policy.")]
    changed = [name for name in typed if name not in ("policy._target_", "policy.entry_point")]
    found = dict.fromkeys(rows["policy"].astype(str))
    names = [name for name in found if name != "dense" and not is_baseline(name)]
    if not changed or not names:
        return ""
    if "policy.name" in typed:
        asked = dict.fromkeys(config["policy"]["name"] for config in configs)
        if asked.keys() & set(names):
            return ""
        return (
            f"The rows are called {', '.join(names)}, not {', '.join(asked)}: these settings ran under that name first."
        )
    way = "policy.name=<another>" if len(names) == 1 else "a command for each with policy.name=<another>"
    return f"The rows are called {', '.join(names)}, whatever {changed[0]} is: {way} tells other settings apart."


def _say_result(done: RunResult) -> None:
    if done.computed:
        say(f"{done.computed} samples computed, {done.present} were there already.")
    else:
        say(f"Nothing to compute: all {done.present} samples were there already.")
    say(f"Rows:   {done.store.root}")
