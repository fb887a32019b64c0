"""What models are asked: samples, prompts and scores. Knows no model, no policy, no budget and no engine.

Tasks are looked up by name here and nowhere else.
"""

from __future__ import annotations

import inspect

from tasks.base import Sample, Task, TaskError, Tokenizer
from tasks.book_perplexity import BookPerplexity
from tasks.checks import nearest
from tasks.niah import NeedleInAHaystack

__all__ = ["TASKS", "Sample", "Task", "TaskError", "Tokenizer", "build", "summary"]

TASKS: dict[str, type[Task]] = {task.name: task for task in (BookPerplexity, NeedleInAHaystack)}


def build(name: str, **parameters: object) -> Task:
    """The task ``name`` with ``parameters``; `TaskError` for an unknown name or parameter, or a wrong value."""
    if name not in TASKS:
        raise TaskError(f"There is no task '{name}'. {nearest(name, TASKS)}")
    known = inspect.signature(TASKS[name]).parameters
    for parameter in parameters:
        if parameter not in known:
            raise TaskError(f"Task {name} has no parameter '{parameter}'. {nearest(parameter, known)}")
    return TASKS[name](**parameters)


def summary(name: str) -> str:
    """The first line of the task's description."""
    return (TASKS[name].__doc__ or "").partition("\n")[0]
