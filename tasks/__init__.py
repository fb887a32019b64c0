"""What models are asked: samples, prompts and scores. Knows no model, no policy, no budget and no engine.

Tasks are looked up by name here and nowhere else.
"""

from __future__ import annotations

import inspect

from tasks.base import Likelihood, Sample, Task, TaskError, Tokenizer
from tasks.book_perplexity import BookPerplexity
from tasks.booksum import BookSum
from tasks.buzz import Buzz
from tasks.checks import nearest
from tasks.gsm8k import Gsm8k
from tasks.hashevict import HashEvict
from tasks.lm_eval_task import LmEvalTask
from tasks.longbench import LongBench
from tasks.lost_in_the_middle import DocumentQuestions, KeyValueRetrieval
from tasks.mini.suite import MINI_SUITE
from tasks.multiple_choice import MultipleChoice
from tasks.needle import Needle
from tasks.niah import NeedleInAHaystack
from tasks.ruler import Ruler
from tasks.wikitext import WikiText

__all__ = ["TASKS", "Likelihood", "Sample", "Task", "TaskError", "Tokenizer", "build", "summary"]

_ALL: tuple[type[Task], ...] = (
    BookPerplexity,
    BookSum,
    Buzz,
    DocumentQuestions,
    Gsm8k,
    HashEvict,
    KeyValueRetrieval,
    LmEvalTask,
    LongBench,
    MultipleChoice,
    Needle,
    NeedleInAHaystack,
    Ruler,
    WikiText,
    *MINI_SUITE,
)
TASKS: dict[str, type[Task]] = {task.name: task for task in _ALL}


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
