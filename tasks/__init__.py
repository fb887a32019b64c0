"""What models are asked: samples, prompts and scores. Knows no model, no policy, no budget and no engine.

Tasks are looked up by name here and nowhere else. The table names each class by its module, so that a run imports the
task it runs and no other.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module

from tasks.base import Likelihood, Sample, Task, TaskError, Tokenizer, nearest

__all__ = ["TASKS", "Likelihood", "Sample", "Task", "TaskError", "Tokenizer", "build", "summary", "task_class"]

TASKS: dict[str, str] = {
    "book_perplexity": "tasks.perplexity:BookPerplexity",
    "booksum": "tasks.perplexity:BookSum",
    "buzz": "tasks.buzz_summaries:BuzzTask",
    "gsm8k": "tasks.gsm8k:Gsm8k",
    "hashevict": "tasks.hashevict_suite:HashEvictTask",
    "key_value": "tasks.lost_in_the_middle:KeyValueRetrieval",
    "lm_eval": "tasks.lm_eval_task:LmEvalTask",
    "longbench": "tasks.longbench:LongBench",
    "longbench_mini/code": "tasks.mini.suite:Code",
    "longbench_mini/few_shot": "tasks.mini.suite:FewShot",
    "longbench_mini/multi_doc_qa": "tasks.mini.suite:MultiDocQA",
    "longbench_mini/passage_count": "tasks.mini.suite:PassageCount",
    "longbench_mini/passage_retrieval": "tasks.mini.suite:PassageRetrieval",
    "longbench_mini/single_doc_qa": "tasks.mini.suite:SingleDocQA",
    "longbench_mini/summary": "tasks.mini.suite:Summary",
    "longbench_v2": "tasks.longbench_v2:LongBenchV2",
    "lost_in_the_middle": "tasks.lost_in_the_middle:DocumentQuestions",
    "math": "tasks.competition_math:CompetitionMath",
    "multiple_choice": "tasks.multiple_choice:MultipleChoice",
    "needle": "tasks.needle:Needle",
    "niah": "tasks.niah:NeedleInAHaystack",
    "reasoning_mini": "tasks.mini.suite:ReasoningMini",
    "ruler": "tasks.ruler:Ruler",
    "ruler_qa": "tasks.ruler_qa:RulerQA",
    "ruler_answers": "tasks.ruler_answers:RulerAnswers",
    "ruler_mini/multikey": "tasks.mini.suite:MultiKey",
    "ruler_mini/multivalue": "tasks.mini.suite:MultiValue",
    "ruler_mini/variables": "tasks.mini.suite:Variables",
    "wikitext": "tasks.perplexity:WikiText",
}


@cache
def task_class(name: str) -> type[Task]:
    """The class of the task ``name``, imported now; `TaskError` with the nearest names for an unknown one."""
    if name not in TASKS:
        raise TaskError(f"There is no task '{name}'. {nearest(name, TASKS)}")
    module, _, kind = TASKS[name].partition(":")
    found: type[Task] = getattr(import_module(module), kind)
    return found


def build(name: str, **parameters: object) -> Task:
    """The task ``name`` with ``parameters``; `TaskError` for an unknown name or parameter, or a wrong value."""
    kind = task_class(name)
    known = inspect.signature(kind).parameters
    for parameter in parameters:
        if parameter not in known:
            raise TaskError(f"Task {name} has no parameter '{parameter}'. {nearest(parameter, known)}")
    return kind(**parameters)


def summary(name: str) -> str:
    """The first line of the task's description."""
    return (task_class(name).__doc__ or "").partition("\n")[0]
