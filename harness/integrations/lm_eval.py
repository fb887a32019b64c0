"""A model for lm-evaluation-harness: its requests go through our engine in batches, under a policy and a budget."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from harness.config.cell import Cell
from harness.config.compose import checked_config, compose_config
from harness.config.experiments import option_names
from harness.config.model import eos_token_ids, pick_device
from harness.engine.engine import Engine
from harness.engine.fast_layers import pack_layers
from harness.engine.requests import Request, RequestOutput, reason_against_model
from harness.errors import UserError
from harness.runner.memory import Footprint, allowed_bytes
from harness.runner.plan import Job, Plan
from harness.runner.progress import Progress
from harness.runner.prompt_encoder import StopTexts, no_tokens_message
from harness.runner.worker import FinishedJobs, compute_batch
from tasks.base import Mode, Sample, Task, TaskError
from tasks.lm_eval_library import GenerationSettings

try:
    from lm_eval import utils
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import has_bos_prefix, postprocess_generated_text, resolve_max_length
except ImportError as error:
    raise UserError(f"{__name__} needs the package lm-eval ({error}): pip install -e '.[lm-eval]'.") from error

log = logging.getLogger(__name__)
UNASKED_DEVICE = "cuda:0"  # the default of lm-eval's --device
Pair = tuple[tuple[str, str], list[int], list[int]]  # texts, tokens of the context, tokens of the continuation


@dataclass(frozen=True)
class LmEvalRequests(Task):
    """The task of one call: lm-eval makes the prompts and scores the answers itself."""

    name: ClassVar[str] = "lm_eval"
    version: ClassVar[str] = "1"

    kind: Mode = "generate"

    @property
    def mode(self) -> Mode:
        """The one that lm-eval requests in this call."""
        return self.kind

    def revision(self) -> dict[str, str]:
        """Nothing of ours: data, prompts and metrics are lm-eval's."""
        return {}


@register_model("kvreplica")
class KVReplica(TemplateLM):
    """A model under a policy and a budget, for ``simple_evaluate(model=KVReplica(…))`` and ``--model kvreplica``.

    ``model``: one of ``python -m harness list models``, a folder, or a hub id that is on this machine. ``settings``:
    all other settings of a cell, with the defaults of ``python -m harness`` (``policy``, ``budget``, ``budget_of``,
    ``prompt``, ``block_size``, ``model.dtype``, ``policy.protect.sinks`` …). ``max_length``: tokens of context and
    answer; from the model's configuration if None. ``batch_size`` is accepted because lm-eval passes it, and has no
    effect: batches are as large as memory allows, and results do not depend on the other requests in a batch.

    The policy acts while the context is read and on every token after it: between the context and the continuation
    of ``loglikelihood`` in all regimes, within the text of ``loglikelihood_rolling`` in ``blocked`` and ``token_fed``.
    A budget that is a share of the prompt is a share of the context; ``longest`` and ``median`` are taken over the
    requests of one call, that is, over all tasks of one kind that are evaluated together.

    Under ``policy=dense`` it agrees with lm-eval's ``HFLM``, with these deviations: decoding is greedy without a
    repetition penalty, whatever the model's generation config says; a context with its continuation is cut (from the
    left) to ``max_length`` tokens, not to one more; rolling windows of texts longer than that are one token shorter.
    Raises the errors of `harness.config.cell.USER_ERRORS`.
    """

    def __init__(
        self,
        model: str = "testbed",
        device: str | None = None,
        max_length: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        chosen = [f"model={model}"] if model in option_names("model") else ["model=hf", f"model.path='{model}'"]
        self.cell = _cell([*chosen, *(f"{name}={value}" for name, value in settings.items())])
        spec = self.cell.model
        self.shape = spec.shape()
        if not self.cell.policy.is_dense and (reason := reason_against_model(self.cell.policy, self.shape)):
            raise UserError(reason)
        self.tokenizer = spec.tokenizer()
        loaded = spec.load(pick_device(device or "auto"))
        pack_layers(loaded)
        self._device = loaded.device
        self.memory = allowed_bytes(loaded.device)  # bytes; read once, as the allocator keeps what a batch has used
        self.engine = Engine(loaded, {*eos_token_ids(loaded), self.eot_token_id})
        config = spec.config()
        self.footprint = Footprint.of(config.get_text_config(), spec.dtype)
        self.max_length = max_length or resolve_max_length(config, self.tokenizer)
        self.progress = Progress()

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> KVReplica:
        """lm-eval's hook for ``--model_args``, whose ``device`` counts before ``--device``."""
        return cls.create_from_arg_obj(utils.simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> KVReplica:
        """The same for settings as a mapping. lm-eval's command line asks for cuda:0 where nothing was asked for; as
        its ``HFLM``, we then take what is here.
        """
        given = {name: value for name, value in (additional_config or {}).items() if value is not None}
        if given.get("device") == UNASKED_DEVICE and not torch.cuda.is_available():
            given["device"] = None
        return cls(**{**given, **arg_dict})

    @property
    def eot_token_id(self) -> int:
        """The tokenizer's end of text."""
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context: beginning of text, or end of text if there is none."""
        beginning = self.tokenizer.bos_token_id
        return self.eot_token_id if beginning is None else int(beginning)

    @property
    def tokenizer_name(self) -> str:
        """The name under which lm-eval caches prompts."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Token ids, never with two beginning-of-text tokens."""
        if add_special_tokens is None:
            add_special_tokens = not has_bos_prefix(string, self.tokenizer.decode(self.prefix_token_id))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages as text in the model's own chat format. Raises `UserError` for a model without one."""
        if not self.tokenizer.chat_template:
            raise UserError(
                f"Model {self.cell.model.name} has no chat format: leave out --apply_chat_template, or choose another."
            )
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Raises `UserError`: the keys of lm-eval's cache of answers hold the prompt but neither policy nor budget."""
        raise UserError(
            "lm-eval's cache of answers (use_cache) would give the answers of one policy for another: leave it out."
        )

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy answers up to the first stop text, without it. Raises `TaskError` for anything but greedy decoding."""
        wanted = [GenerationSettings.parse(request.task_name or "", request.args[1]) for request in requests]
        prompts = [
            self._cut(self.tok_encode(request.args[0]), self.max_length - generation.max_new_tokens)
            for request, generation in zip(requests, wanted, strict=True)
        ]
        rows = [
            replace(
                self._request(prompt, prompts, generation.max_new_tokens),
                max_new_tokens=generation.max_new_tokens,
                until=StopTexts(generation.until, self.tokenizer) if generation.until else None,
            )
            for prompt, generation in zip(prompts, wanted, strict=True)
        ]
        end = self.tokenizer.decode(self.eot_token_id)
        return [
            postprocess_generated_text(
                self.tokenizer.decode(outcome.tokens, skip_special_tokens=True), [*generation.until, end], None
            )
            for outcome, generation in zip(self._run("generate", rows), wanted, strict=True)
        ]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log likelihood of each text after one prefix token (nats), read in the cell's regime under its policy.

        A text longer than ``max_length`` is read in overlapping windows, each a prompt of its own; every token is
        scored once. Raises `UserError` where the regime evicts nothing before the text ends.
        """
        if self.cell.prompting.regime == "one_shot" and not self.cell.policy.is_dense:
            raise UserError(
                "A rolling likelihood predicts the text itself, and prompt=one_shot evicts only after it, so that it "
                "would be dense whatever the policy: use prompt=blocked or prompt=token_fed."
            )
        windows = [
            (number, before, scored)
            for number, request in enumerate(requests)
            for before, scored in map(
                utils.make_disjoint_window,
                utils.get_rolling_token_windows(
                    self.tok_encode(request.args[0]), self.prefix_token_id, self.max_length - 1, 1
                ),
            )
        ]
        prompts = [before + scored for _, before, scored in windows]
        rows = [self._request(prompt, prompts, 0) for prompt in prompts]
        totals = [0.0] * len(requests)
        for (number, _, scored), outcome in zip(windows, self._run("perplexity", rows), strict=True):
            totals[number] -= sum(outcome.nll[-len(scored) :])
        return totals

    def _loglikelihood_tokens(
        self, requests: list[Pair], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Log likelihood of each continuation (nats), and whether it is the greedy one."""
        for (_, text), _, continuation in requests:
            if not continuation:
                raise TaskError(no_tokens_message(text, "its context"))
        prompts = [self._cut(context, self.max_length - len(continuation)) for _, context, continuation in requests]
        rows = [
            replace(self._request(prompt, prompts, 0), max_new_tokens=len(continuation), continuation=continuation)
            for prompt, (_, _, continuation) in zip(prompts, requests, strict=True)
        ]
        return [(-sum(outcome.nll), outcome.greedy) for outcome in self._run("continuations", rows)]

    def _request(self, prompt: Sequence[int], prompts: Sequence[Sequence[int]], new_tokens: int) -> Request:
        """A request under the cell's policy; its budget may depend on ``prompts``, all of this call."""
        policy, budget = self.cell.policy, self.cell.budget
        slots = 0 if policy.is_dense else budget.slots_for(len(prompt), new_tokens, [len(other) for other in prompts])
        return Request(prompt, policy, slots, so_far=budget.so_far)

    def _cut(self, prompt: list[int], room: int) -> list[int]:
        """The last ``room`` tokens, as lm-eval's own models cut. Raises `UserError` for no room."""
        if room < 1:
            raise UserError(
                f"An answer of so many tokens leaves no room for its context in max_length={self.max_length}: ask for "
                "shorter ones (--gen_kwargs max_gen_toks=…)."
            )
        if len(prompt) > room:
            log.warning("A context of %d tokens is cut to its last %d.", len(prompt), room)
        return prompt[-room:]

    def _run(self, mode: Mode, rows: Sequence[Request]) -> list[RequestOutput]:
        """The engine's outputs, in the order of ``rows``. Rows with the same context read it once (prefix sharing)."""
        cell = replace(self.cell, task=LmEvalRequests(mode))
        jobs = tuple(Job(cell, Sample(str(number), ""), (row,)) for number, row in enumerate(rows))
        work = Plan(cell.model, (cell,), jobs, 0, self.shape, self.footprint)
        found: dict[str, RequestOutput] = {}

        def keep(finished: FinishedJobs) -> None:
            for job, (outcome,) in zip(finished.jobs, finished.outcomes, strict=True):
                found[job.sample.id] = outcome

        with self.progress.over(work.tokens):
            for batch in work.batches(self.memory):
                compute_batch(self.engine, work.with_jobs(batch).waves(self.memory), self.progress, keep)
        return [found[job.sample.id] for job in jobs]


def _cell(overrides: Sequence[str]) -> Cell:
    """The cell that ``python -m harness`` would make from these settings; its task is ignored."""
    cell = Cell.parse(checked_config(compose_config(overrides)))
    if cell.prompting.split != "whole":
        raise UserError("lm-eval's requests do not say where their question begins: leave prompt_split=context out.")
    if cell.configuration["sampling"]["temperature"]:
        raise UserError("lm-eval's requests are answered greedily: leave sampling.temperature out.")
    return cell
