"""Estimates of a sweep before it runs: tokens, passes and time.

Work is counted on the rows themselves, with `harness.engine.batch.prefix_sharing`. Where data or model are not on this
machine, one row of the published mean length stands for every sample of a task, with the shapes of
``conf/estimates.yaml``.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from types import SimpleNamespace
from typing import Any

import torch

from harness.config.budget import published_estimates, published_length
from harness.config.model import DTYPES, ModelSpec
from harness.engine.batch.prefix_sharing import plan_sharing, readers_of_prompts
from harness.engine.decode.look_ahead import chunks_ahead, dense_runs, repeated_prompts
from harness.engine.requests import Prompting, Request
from harness.errors import UserError
from harness.runner.memory import linear_parameters

TIMED_TOKENS = 128  # of the pass that `measured_pace` times
LARGEST_TIMED = 2 * 2**30  # bytes of weights; loading more takes longer than a plan should


@dataclass(frozen=True)
class WorkEstimate:
    """Tokens to feed at most (generation may end earlier), each row by itself and with shared prompt work.

    Both count what is fed for a policy alone: the oracle's dense runs and the prompts that KVzip repeats.
    ``passes``: forward passes of batches that the shared work takes, at most.
    """

    rows: int = 0
    prompt: int = 0
    alone: int = 0
    shared: int = 0
    passes: int = 0

    def __add__(self, other: WorkEstimate) -> WorkEstimate:
        return WorkEstimate(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def times(self, samples: int) -> WorkEstimate:
        """The same for so many samples."""
        return WorkEstimate(*(count * samples for count in astuple(self)))


def estimate_work(rows: Iterable[tuple[Request, Prompting]]) -> WorkEstimate:
    """The work of rows that are read together: all of one sample, or of several."""
    by_regime: dict[Prompting, list[Request]] = defaultdict(list)
    for row, prompting in rows:
        by_regime[prompting].append(row)
    return sum((_of_regime(members, prompting) for prompting, members in by_regime.items()), WorkEstimate())


def _of_regime(rows: Sequence[Request], prompting: Prompting) -> WorkEstimate:
    alone = WorkEstimate(
        len(rows),
        sum(row.prompt_tokens for row in rows),
        alone=sum(row.total_tokens + _fed_ahead(row) for row in rows),
    )
    ahead = work_ahead(rows, prompting)
    readers = readers_of_prompts(rows)
    later = sum(rows[index].total_tokens - len(rows[index].tokens) for own in readers for index in own[1:])
    rows = [rows[own[0]] for own in readers]
    plan = plan_sharing(rows, prompting)
    chunks = [row.chunks(prompting) for row in rows]
    passes = [len(each) + row.total_tokens - len(row.tokens) for each, row in zip(chunks, rows, strict=True)]
    fed = sum(rows[index].total_tokens for batch in plan.alone for index in batch)
    for group in plan.prefix_groups:
        read = zip(group.prompts, group.chunks(rows, prompting), strict=True)
        fed += sum(chunks[index][len(each) - 1][1] for index, each in read)
        for branch in group.branches:
            fed += sum(rows[index].total_tokens - chunks[index][branch.after][1] for index in branch.rows)
    return alone + ahead + WorkEstimate(shared=fed + later, passes=plan.passes(passes))


def work_ahead(rows: Sequence[Request], prompting: Prompting) -> WorkEstimate:
    """What `look_ahead` feeds: the oracle's dense runs, which are one batch, and repeated prompts, each alone."""
    dense, repeated = dense_runs(rows, prompting), repeated_prompts(rows)
    own = [len(chunks_ahead(row, prompting)) + row.total_tokens - len(row.tokens) for row in dense]
    pieces = sum(1 + len(row.pieces_repeated()) for row in repeated)
    return WorkEstimate(shared=sum(map(_fed_ahead, [*dense, *repeated])), passes=max(own, default=0) + pieces)


def _fed_ahead(row: Request) -> int:
    """Tokens of the dense run that the oracle looks ahead in, or of a prompt that is repeated."""
    return row.total_tokens if row.policy.hindsight else row.tokens_reread


@dataclass(frozen=True)
class Pace:
    """What a model's sweeps have taken, measured: seconds for each forward pass and for each token in it, and to begin
    and end. ``gflops``: what `matrix_rate` gave on that machine. ``conditions``: date and machine, in words."""

    begin: float
    per_pass: float
    per_token: float
    gflops: float
    conditions: str

    @staticmethod
    def of(model: str) -> Pace | None:
        """That of a model by its name; None where nothing was measured."""
        known = published_estimates()["paces"].get(model)
        return Pace(**known) if known else None

    def seconds(self, done: WorkEstimate, rate: float) -> float:
        """For this work on a machine whose matrix products run at ``rate`` operations per second."""
        steady = done.passes * self.per_pass + done.shared * self.per_token
        return self.begin + steady * self.gflops * 1e9 / rate


def published_lengths(task: str) -> tuple[int, int]:
    """Samples and mean prompt tokens of a task by its label. Raises `UserError` where nothing is known."""
    if (known := published_length(task)) is not None:
        return known
    raise UserError(
        f"Data of task '{task}' is not on this machine, and conf/estimates.yaml has no length of it: fetch it."
    )


def text_config(model: ModelSpec) -> Any:
    """The model's configuration, or its published shape. Raises `UserError` for a model of neither."""
    try:
        return model.config().get_text_config()
    except UserError:
        if model.name not in published_estimates()["shapes"]:
            raise
        return SimpleNamespace(**published_estimates()["shapes"][model.name], head_dim=None)


def parameters(config: Any) -> int:
    """All parameters of a Llama-like model but the few of its norms and biases."""
    tables = 1 if getattr(config, "tie_word_embeddings", False) else 2
    return linear_parameters(config) + tables * int(config.vocab_size) * int(config.hidden_size)


def measured_pace(model: ModelSpec, device: str, rate: float) -> Pace | None:
    """From two passes of the model itself, measured now; None for a model that is large or not on this machine.

    ``rate``: what `matrix_rate` gives. Attention over a long cache, evictions and statistics are not counted.
    """
    try:
        config = model.config().get_text_config()
        if parameters(config) * DTYPES[model.dtype].itemsize > LARGEST_TIMED:
            return None
        begun = time.perf_counter()
        loaded = model.load(device)
        begin = time.perf_counter() - begun
    except UserError:
        return None
    one, many = (_seconds_of_pass(loaded, tokens) for tokens in (1, TIMED_TOKENS))
    per_token = max(0.0, many - one) / (TIMED_TOKENS - 1)
    conditions = (
        f"just now a pass of {TIMED_TOKENS} tokens took {many:.3f} s and one of a single token {one:.3f} s (eviction "
        "and attention over a long cache come on top)"
    )
    return Pace(begin, one, per_token, rate / 1e9, conditions)


@torch.inference_mode()
def _seconds_of_pass(model: Any, tokens: int) -> float:
    """The median of five passes after one that is not counted."""
    chunk = torch.ones(1, tokens, dtype=torch.long, device=model.device)
    taken = []
    for _ in range(6):
        begun = time.perf_counter()
        model(chunk, use_cache=False, logits_to_keep=1)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])


def matrix_rate(device: str, dtype: str, width: int = 1024, seconds: float = 0.3) -> float:
    """Floating-point operations per second of a matrix product on this device, measured now."""
    left = torch.ones(512, width, dtype=DTYPES[dtype], device=device)
    right = torch.ones(width, width, dtype=DTYPES[dtype], device=device)
    left @ right
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        left @ right
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        done += 1
    return done * 2 * 512 * width * width / (time.perf_counter() - begun)
