"""Any task of lm-evaluation-harness as a task of this project: prompts, answers and scores are the package's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from tasks.base import Likelihood, Mode, Sample, Task, TaskError, Tokenizer, texts_hash, whole
from tasks.lm_eval_library import FEWSHOT_SEED, GenerationSettings, load

MODES: dict[str, Mode] = {
    "generate_until": "generate",
    "multiple_choice": "continuations",
    "loglikelihood": "continuations",
    "loglikelihood_rolling": "perplexity",
}
SCORED_BY = ("metric_list", "filter_list", "process_results", "doc_to_target", "doc_to_choice")


@dataclass(frozen=True)
class LmEvalTask(Task):
    """A task of lm-evaluation-harness: prompts, choices, stop strings, filters and scores as the package defines them.

    ``task`` is a name that lm-eval knows (not a group), or the path of a task's YAML file; ``include_path`` a folder
    of further ones. Texts to generate, choices by likelihood and rolling perplexities become the three modes.
    Metrics are those that lm-eval averages over documents; one of a named filter is ``metric/filter``
    (``exact_match/strict-match``). A rolling task is scored by ``nll``, nats per token of our own encoding.

    Deviations from ``lm_eval`` itself: with ``chat`` the few shots stand in one user message, and the description is
    the system message; a rolling document is read without a prefix token, and one longer than the model is refused.

    Source: EleutherAI/lm-evaluation-harness, the installed version (it is part of the revision).
    """

    name: ClassVar[str] = "lm_eval"
    path_fields: ClassVar[tuple[str, ...]] = ("include_path",)
    version: ClassVar[str] = "1"

    task: str | None = None
    include_path: str | None = None
    num_fewshot: int | None = None  # the task's own where None
    chat: bool = False  # whether the prompt is a user message of the model's chat format

    def __post_init__(self) -> None:
        if self.num_fewshot is not None:
            object.__setattr__(self, "num_fewshot", whole("lm_eval.num_fewshot", self.num_fewshot, 0))

    @property
    def label(self) -> str:
        """``lm_eval/arc_easy``."""
        return f"{self.name}/{Path(self.task).stem}" if self.task else self.name

    @property
    def mode(self) -> Mode:
        """By the task's output type. Raises `TaskError` where the task or its data is not there."""
        return MODES[self._loaded.OUTPUT_TYPE]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that are means over documents, under every filter. Raises `TaskError` where there is none."""
        if self.mode == "perplexity":
            return ("nll",)
        averaged = _averaged(self._loaded)
        if not averaged:
            raise TaskError(
                f"lm-eval task '{self.task}' has only scores of the whole set, none of single documents: run it with "
                "'python -m harness lm_eval --model kvreplica …'."
            )
        return tuple(_named(metric, each.name) for each in self._loaded._filters for metric in averaged)

    def revision(self) -> dict[str, str]:
        """The documents; the model's inputs; how lm-eval scores its outputs, the package's version included.

        Raises `TaskError` for tasks that this project cannot run.
        """
        return _revision(self)

    def samples(self, tokenizer: Tokenizer) -> Sequence[Sample]:
        """All documents of the evaluated split, in its order."""
        return _samples(self)

    def score(self, sample: Sample, prediction: str) -> Mapping[str, float]:
        """By the task's filters and its ``process_results``."""
        return self._scores(sample, [prediction])

    def score_continuations(self, sample: Sample, likelihoods: Sequence[Likelihood]) -> Mapping[str, float]:
        """By the task's ``process_results``, from the log likelihood of each choice and whether it is greedy."""
        return self._scores(sample, [(each.nats, each.greedy) for each in likelihoods])

    @property
    def _loaded(self) -> Any:
        if self.task is None:
            raise TaskError("task=lm_eval needs to know which: add task.task=<name>, for example task.task=arc_easy.")
        return load(self.task, self.include_path, self.num_fewshot)

    def _scores(self, sample: Sample, responses: Sequence[Any]) -> Mapping[str, float]:
        task, doc = self._loaded, sample.details["doc"]
        requests = _requests(task, doc, sample.prompt, self.chat)
        for request, response in zip(requests, responses, strict=True):
            request.resps = [response] * task.config.repeats
        task._instances = requests
        task.apply_filters()
        scores: dict[str, float] = {}
        for each in task._filters:
            results = task.process_results(doc, [request.filtered_resps[each.name] for request in requests])
            scores |= {_named(m, each.name): float(v) for m, v in results.items() if m in _averaged(task)}
        return scores


@cache
def _revision(of: LmEvalTask) -> dict[str, str]:
    settings, samples = of._loaded.dump_config(), _samples(of)
    scoring = {key: settings[key] for key in SCORED_BY if key in settings}
    asked = [(s.prompt, s.system, s.answer_prefix, s.continuations, s.until, s.max_new_tokens) for s in samples]
    return {
        "data": texts_hash(*(_plain(sample.details["doc"]) for sample in samples)),
        "prompts": texts_hash(*map(_plain, asked)),
        "metrics": texts_hash(version("lm_eval"), *of.metrics, _plain(scoring)),
    }


@cache
def _samples(of: LmEvalTask) -> list[Sample]:
    task = of._loaded
    task.set_fewshot_seed(FEWSHOT_SEED)  # lm-eval draws the few shots document by document, from one generator
    return [_sample(of, task, number, doc) for number, doc in enumerate(task.eval_docs)]


def _sample(of: LmEvalTask, task: Any, number: int, doc: Any) -> Sample:
    context = task.fewshot_context(
        doc,
        num_fewshot=task.config.num_fewshot or 0,
        apply_chat_template=of.chat,
        chat_template=_messages if of.chat else None,
        gen_prefix=task.doc_to_prefix(doc),
    )
    requests = _requests(task, doc, context, of.chat)
    asked: dict[str, Any] = {"id": f"{number:05d}", "document": f"{number:05d}", "details": {"doc": doc}}
    if of.mode == "perplexity":
        return Sample(prompt=requests[0].args[0], **asked)
    contexts = [request.args[0] for request in requests]
    if any(other != contexts[0] for other in contexts):
        raise TaskError(
            f"lm-eval task '{of.task}' asks for likelihoods after several contexts of one document (row {number}), "
            "and a sample has one prompt: run it with 'python -m harness lm_eval --model kvreplica …'."
        )
    asked |= contexts[0] if of.chat else {"prompt": contexts[0]}
    if of.mode == "generate":
        generation = GenerationSettings.parse(str(of.task), requests[0].args[1])
        return Sample(
            references=_references(task.doc_to_target(doc), ()),
            until=generation.until,
            max_new_tokens=generation.max_new_tokens,
            **asked,
        )
    continuations = tuple(request.args[1] for request in requests)
    return Sample(references=_references(task.doc_to_target(doc), continuations), continuations=continuations, **asked)


def _requests(task: Any, doc: Any, context: Any, chat: bool) -> list[Any]:
    made = task.construct_requests(
        doc=doc, ctx=context, metadata=(task.task_name, 0, task.config.repeats), apply_chat_template=chat
    )
    return made if isinstance(made, list) else [made]


def _messages(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> Mapping[str, Any]:
    """In place of lm-eval's chat template: the fields of a sample, whose format the model's own template decides."""
    text = {message["role"]: message["content"] for message in messages}
    return {
        "prompt": text["user"],
        "system": text.get("system", ""),
        "answer_prefix": "" if add_generation_prompt else text["assistant"],
        "chat": True,
    }


def _references(target: Any, continuations: Sequence[str]) -> tuple[str, ...]:
    """Targets of a document as texts; numbers count its choices."""
    targets = target if isinstance(target, list) else [target]
    return tuple(
        continuations[each].strip() if isinstance(each, int) and each < len(continuations) else str(each)
        for each in targets
    )


def _averaged(task: Any) -> list[str]:
    """Metrics that lm-eval averages over documents."""
    from lm_eval.api.metrics import mean

    return [metric for metric, aggregation in task.aggregation().items() if aggregation is mean]


def _named(metric: str, of_filter: str) -> str:
    return metric if of_filter == "none" else f"{metric}/{of_filter}"


def _plain(data: Any) -> str:
    return json.dumps(data, sort_keys=True, default=str, ensure_ascii=False)
