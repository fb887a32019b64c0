"""A policy is a composition: scorer × value correction × allocator × protection × schedule.

Scorers, corrections and allocators are in modules of their own; protection (`Protect`) and schedule (`Schedule`) are
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from torch import Tensor

from policies.caote import Correction
from policies.gemfilter import TokenFilter
from policies.scorer import AttentionFree, Scorer, SlotState
from policies.selection import Allocator, as_written, keep_best, keep_best_of_each, priorities
from policies.view import CacheView, PolicyError

PromptSchedule = Literal["each_block", "after_prompt", "never"]
DecodeSchedule = Literal["each_step", "never"]
Rope = Literal["absolute", "cache"]
LogitScale = Literal["none", "log512"]


@dataclass(frozen=True)
class Protect:
    """Slots that no score can evict.

    ``sinks``: the first tokens of the sequence. ``recent``: the newest tokens, an absolute number or, between 0 and
    1, a share of the budget, rounded down (KeyDiff Table 11; policies.md A-09).
    """

    sinks: int = 0  # tokens
    recent: float = 0  # tokens, or a share of the budget

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 0:
            raise PolicyError(f"protect.sinks={self.sinks} and protect.recent={self.recent} must be 0 or more tokens.")
        if self.recent > 1 and self.recent != int(self.recent):
            raise PolicyError(f"protect.recent={self.recent} must be whole tokens (1, 2, …) or a share below 1.")

    def recent_slots(self, budget: int) -> int:
        """The protected recent window, in tokens, under a budget of so many slots."""
        return math.floor(as_written(self.recent) * budget) if self.recent < 1 else int(self.recent)

    def smallest_budget(self) -> int:
        """Slots that hold what is protected. A share of the budget is never more than the budget, so it needs none."""
        return self.sinks + (0 if self.recent < 1 else int(self.recent))

    def sink_mask(self, view: CacheView) -> Tensor:
        """(R, H, N) bool: positions 0 … sinks - 1."""
        return view.filled & (view.positions < self.sinks)

    def recent_mask(self, view: CacheView) -> Tensor:
        """(R, H, N) bool: the newest positions. None of them was evicted before, so n positions are n slots."""
        window = view.per_row(tuple(self.recent_slots(budget) for budget in view.budgets))
        return view.filled & (view.positions >= view.seen - window)


@dataclass(frozen=True)
class Schedule:
    """When eviction happens: after each prompt block, once after the prompt, or never; and in decode.

    ``evict_first``: single tokens find their slot freed before they are attended (order "evict, append, attend" of
    policies.md 1.2, HashEvict Algorithm 1); otherwise they are appended and attended first, and evicted after.
    ``every``: in decode eviction waits until so many tokens more than the budget are held, and then goes back to the
    budget (R-KV's public code and kvpress' DecodingPress: 128). The slack of ``every`` - 1 slots is part of the limits
    that the ledger checks, and shows in ``slots_kept_max`` and ``kv_bytes``.
    """

    prompt: PromptSchedule = "each_block"
    decode: DecodeSchedule = "each_step"
    evict_first: bool = False
    every: int = 1  # tokens

    def __post_init__(self) -> None:
        if self.every < 1:
            raise PolicyError(f"schedule.every={self.every} must be at least 1 token.")
        if self.every > 1 and (self.evict_first or self.decode == "never"):
            raise PolicyError(
                f"schedule.every={self.every} collects tokens before it evicts in decode, which needs "
                "schedule.decode=each_step and schedule.evict_first=false."
            )
        if self.prompt not in get_args(PromptSchedule):
            raise PolicyError(f"schedule.prompt='{self.prompt}' is not one of {', '.join(get_args(PromptSchedule))}.")
        if self.decode not in get_args(DecodeSchedule):
            raise PolicyError(f"schedule.decode='{self.decode}' is not one of {', '.join(get_args(DecodeSchedule))}.")


@dataclass(frozen=True)
class PromptStage:
    """The rule for the prompt, of policies that have another one there than in decode (cold-compress)."""

    scorer: Scorer
    protect: Protect = field(default_factory=Protect)


@dataclass(frozen=True)
class Policy:
    """One eviction policy. Frozen, without tensors: the engine holds all state.

    ``scorer = None`` is the dense policy, which never evicts and ignores the budget. ``rope="cache"`` means that
    positions are indices inside the cache: keys are stored unrotated (policies.md 1.5). ``logit_scale="log512"``
    multiplies attention logits by ln n / ln 512 where n slots are attended (BUZZ; policies.md 3.17, A-33).
    """

    name: str
    scorer: Scorer | None = None
    correction: Correction | None = None
    protect: Protect = field(default_factory=Protect)
    schedule: Schedule = field(default_factory=Schedule)
    allocator: Allocator | None = None
    prompt_stage: PromptStage | None = None
    rope: Rope = "absolute"
    logit_scale: LogitScale = "none"
    hindsight: bool = False  # whether the engine shows the dense run's future (the oracle)
    token_filter: TokenFilter | None = None  # GemFilter: choose prompt tokens, then run dense on them

    def __post_init__(self) -> None:
        if self.correction is not None and (self.scorer is None or not self.scorer.nonnegative):
            raise PolicyError(
                f"Policy '{self.name}' puts {type(self.correction).__name__} over a scorer whose scores can be "
                "negative; value corrections need an attention mass (h2o, tova or snapkv)."
            )
        if self.rope not in ("absolute", "cache"):
            raise PolicyError(f"Policy '{self.name}' has rope='{self.rope}', which is not one of absolute, cache.")
        if self.logit_scale not in ("none", "log512"):
            raise PolicyError(
                f"Policy '{self.name}' has logit_scale='{self.logit_scale}', which is not one of none, log512."
            )
        if self.rope == "cache" and self.carried:
            raise PolicyError(
                f"Policy '{self.name}' carries queries, whose rotation would be stale once positions inside the cache "
                "move: set policy.rope=absolute or policy.scorer.window_source=chunk."
            )
        if self.repeats is not None and (self.schedule.prompt, self.schedule.decode) != ("after_prompt", "never"):
            raise PolicyError(
                f"Policy '{self.name}' scores a prompt by letting the model repeat it, once it has been read whole: "
                "set policy.schedule.prompt=after_prompt and policy.schedule.decode=never."
            )
        if self.allocator is not None and self.schedule.prompt == "each_block":
            raise PolicyError(
                f"Policy '{self.name}' allocates budgets of different sizes, which needs the whole prompt: "
                "set policy.schedule.prompt=after_prompt."
            )
        if self.schedule.every > 1 and not self.uniform:
            raise PolicyError(
                f"Policy '{self.name}' gives heads budgets of different sizes, for which schedule.every="
                f"{self.schedule.every} is not defined: set policy.schedule.every=1."
            )
        if self.allocator is not None and self.schedule.evict_first:
            raise PolicyError(
                f"Policy '{self.name}' allocates budgets of different sizes and evicts before attention, "
                "which no paper defines: set policy.schedule.evict_first=false."
            )

    @property
    def slack(self) -> int:
        """Slots beyond the budget that may be held between two evictions in decode."""
        return self.schedule.every - 1

    @property
    def is_dense(self) -> bool:
        """Whether nothing is ever evicted."""
        if self.token_filter is not None:
            return False
        return self.scorer is None or (self.schedule.prompt == "never" and self.schedule.decode == "never")

    @property
    def uniform(self) -> bool:
        """Whether all layers and heads hold the same number of slots: min(budget, tokens seen)."""
        return self.allocator is None

    @property
    def keeps_to_budget(self) -> bool:
        """Whether layers and heads together never hold more than the nominal budget times their number."""
        return self.allocator is None or self.allocator.exact

    @property
    def state(self) -> Mapping[str, SlotState]:
        """The tensors carried per slot."""
        return {} if self.scorer is None else self.scorer.state

    @property
    def carried(self) -> tuple[str, ...]:
        """Names of the tensors carried per row; most scorers have none and leave the attribute out."""
        return getattr(self.scorer, "carried", ())

    @property
    def counts_layers(self) -> bool:
        """Whether the scorer reads how many earlier layers kept a token (``view.kept_before``); only K-VEC's does."""
        return getattr(self.scorer, "counts_layers", False)

    @property
    def foresees(self) -> int | None:
        """Positions beyond the text for which the scorer wants the rotary table; None where it reads none."""
        return getattr(self.scorer, "foresees", 0) if getattr(self.scorer, "reads_rotation", False) else None

    @property
    def repeats(self) -> tuple[int, int] | None:
        """How the model repeats the prompt for the scorer, (tokens of a piece, sinks); None where it need not."""
        scorer: Any = self.scorer
        return (scorer.chunk, self.protect.sinks) if getattr(scorer, "reads_repetition", False) else None

    @property
    def reads_output(self) -> bool:
        """Whether the scorer reads the model's output projection (``view.output_heads``)."""
        return getattr(self.scorer, "reads_output", False)

    @property
    def is_stateful(self) -> bool:
        """Whether anything is carried from chunk to chunk, so that every chunk must be shown."""
        return bool(self.state or self.carried)

    @property
    def attention_free(self) -> bool:
        """Whether a whole prompt's evictions follow from its queries and keys alone (policies.md 3.14, 6.4).

        Then a prompt that is defined token by token is read in one pass: `eviction_steps` says when each token goes.
        """
        return self.schedule.evict_first and isinstance(self.scorer, AttentionFree) and self.correction is None

    def eviction_steps(self, view: CacheView) -> Tensor:
        """(R, H, T) int64: the position of the token that evicts each one; the view's rows share one budget.

        See `policies.scorer.AttentionFree`.
        """
        assert isinstance(self.scorer, AttentionFree)
        return self.scorer.eviction_steps(view, self.protect.sinks, self.protect.recent_slots(view.budgets[0]))

    def check_budget(self, budget: int) -> None:
        """Raise `PolicyError` where the budget (slots per layer and KV head) cannot hold what is protected."""
        needed = max(1, self.protect.smallest_budget())
        if budget < needed:
            raise PolicyError(
                f"A budget of {budget} slots is smaller than the {needed} that policy '{self.name}' protects "
                f"(sinks={self.protect.sinks}, recent={self.protect.recent:g}): "
                f"raise the budget to at least {needed} or lower policy.protect."
            )

    @property
    def self_visible(self) -> bool:
        """Whether a token that a head does not admit still attends to itself."""
        return True

    def admits(self, view: CacheView) -> Tensor:
        """(R, H) bool: whether a head admits the single new token. Called before attention (evict first)."""
        return view.filled.new_ones(view.filled.shape[:2])

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """Everything the scorer carries, after this chunk: (R, H, N, …) per slot, (R, …) per row."""
        assert self.scorer is not None
        return self.scorer.update(view)

    def scores(self, view: CacheView) -> Tensor:
        """(R, H, N) fp32, larger = keep, after the value correction. Raises `PolicyError` for anything else."""
        assert self.scorer is not None
        base = self.scorer.score(view)
        if not isinstance(base, Tensor) or base.shape != view.filled.shape or not base.is_floating_point():
            given = f"{base.dtype} {tuple(base.shape)}" if isinstance(base, Tensor) else type(base).__name__
            raise PolicyError(
                f"The scores of policy '{self.name}' are {given}, not floating-point numbers of (rows, KV heads, "
                f"slots), here {tuple(view.filled.shape)}: let {type(self.scorer).__name__}.score return one for each."
            )
        return base if self.correction is None else self.correction.correct(base, view)

    def keep(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """The slots that stay, (R, H, N) bool, and whether a row has a score that is NaN, (R,) bool."""
        if self.prompt_stage is not None and view.phase == "prompt":
            stage = self.prompt_stage
            return replace(self, scorer=stage.scorer, protect=stage.protect, prompt_stage=None).keep(view)
        scores = self.scores(view)
        of_filled = scores if view.is_full else scores.masked_fill(~view.filled, 0.0)
        broken = of_filled.flatten(1).amax(-1).isnan()  # amax is NaN as soon as one score is
        sinks = self.protect.sink_mask(view) if self.protect.sinks else None
        recent = self.protect.recent_mask(view) if self.protect.recent else None
        ranked = priorities(scores, view, sinks, recent)
        if self.allocator is None:
            return keep_best(ranked, view), broken
        sinks, recent = self.protect.sink_mask(view), self.protect.recent_mask(view)
        return keep_best_of_each(ranked, view, self.allocator.targets(view, scores, sinks | recent)), broken


DENSE = Policy("dense", schedule=Schedule(prompt="never", decode="never"))
