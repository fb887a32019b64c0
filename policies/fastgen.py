"""FastGen: each head gets the cheapest of five hybrid policies that recovers enough attention (Ge et al. 2023;
policies.md, 3.12, after cold-compress, which HashEvict used).

Hybrids in increasing cost, the first ``sinks`` tokens always included: 1 special tokens, 2 punctuation too, 3 heavy
hitters too, 4 a local window too, 5 everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor
from typing import NamedTuple

import torch
from torch import Tensor

from policies.policy import Schedule
from policies.scorer import SlotState
from policies.selection import as_written, keep_best_of_each, priorities
from policies.view import CacheView, PolicyError

PUNCTUATION, HEAVY, WINDOW, FULL = 2, 3, 4, 5  # the first hybrid with it; special tokens are in all


@dataclass(frozen=True)
class FastGen:
    """Profiled per head on a one-shot prompt; then every step evicts before attention.

    ``recovery``: share of attention mass a hybrid must recover. The budget is no limit here: it is the length that
    ``heavy_frac`` and ``window_frac`` are shares of, and never less than the prompt; give 100% of prompt_and_new to
    follow the paper. ``history``: observations of the running average, 4 bytes each per slot.
    Heads of hybrids 1 and 2 admit no ordinary new tokens, which then do not even attend to themselves, unless
    ``self_visible`` (A-19). Token ids are the tokenizer's; None: not filled in yet (`dataclasses.replace`).
    """

    recovery: float = 0.9
    heavy_frac: float = 0.3
    window_frac: float = 0.3
    sinks: int = 4
    self_visible: bool = False
    history: int = 400
    special_ids: tuple[int, ...] | None = None
    punctuation_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("special_ids", "punctuation_ids"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(sorted(getattr(self, name))))
        if not (0 <= self.heavy_frac <= 1 and 0 <= self.window_frac <= 1):
            raise PolicyError(
                f"fastgen heavy_frac={self.heavy_frac} and window_frac={self.window_frac} are shares of the "
                "sequence: give numbers from 0 to 1."
            )
        if self.recovery < 0:
            raise PolicyError(
                f"fastgen recovery={self.recovery} is a share of attention: give 0 or more; above 1 all stays."
            )
        if self.sinks < 1 or self.history < 1:
            raise PolicyError(f"fastgen sinks={self.sinks} and history={self.history} must be at least 1.")

    @property
    def keeps_to_budget(self) -> bool:
        """Every head has a budget of its own."""
        return False

    @property
    def state(self) -> dict[str, SlotState]:
        """Observed attention, how often, and the head's hybrid, repeated in each of its slots."""
        return {
            "ring": SlotState((self.history,)),
            "observations": SlotState(),
            "hybrid": SlotState(dtype=torch.uint8),
        }

    def check_budget(self, budget: int) -> None:
        """Every budget is valid."""

    def check_schedule(self, schedule: Schedule) -> None:
        """One profile of the whole prompt, then one decision before each token."""
        if schedule != Schedule("after_prompt", "each_step", evict_first=True):
            raise PolicyError(
                "fastgen profiles the whole prompt and then frees a slot before each token: "
                "set policy.schedule={prompt: after_prompt, decode: each_step, evict_first: true}."
            )

    def update(self, view: CacheView) -> dict[str, Tensor]:
        """One observation per chunk: the mean attention from the queries that could see the token."""
        columns = view.attention.received("all")
        witnesses = (view.seen - view.positions).minimum(view.attention.rows("all")).clamp(min=1)
        mean = columns / witnesses
        index = self._ring_index(view).expand_as(mean).unsqueeze(-1)
        hybrid = self._profile(view, columns, mean) if view.phase == "prompt" else _hybrid(view)
        observes = view.attention.rows("all") > 0  # some rows wait
        ring = view.state["ring"].scatter(-1, index, mean.unsqueeze(-1))
        return {
            "ring": torch.where(observes.unsqueeze(-1), ring, view.state["ring"]),
            "observations": view.state["observations"] + (view.filled & observes),
            "hybrid": hybrid.to(torch.uint8).expand_as(view.state["hybrid"]),
        }

    def keep(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """In the prompt what the head's hybrid keeps for the last query; in decode all but one where a head is full."""
        if view.phase == "prompt":
            index = self._ring_index(view).expand_as(view.positions).unsqueeze(-1)
            score = view.state["ring"].gather(-1, index).squeeze(-1)
            kept = self._filling(view, score)
        else:
            score = view.state["ring"].sum(-1) / view.state["observations"].clamp(1, self.history)
            kept = self._with_room(view, score)
        return kept, (score.isnan() & view.filled).flatten(1).any(-1)

    def admits(self, view: CacheView) -> Tensor:
        """(R, H) bool: heavy and full heads admit every token, others punctuation and what still fits."""
        hybrid, budget = _hybrid(view), self._head_budget(view)
        takes = (hybrid >= HEAVY) | self._exempt(view, hybrid) | (view.filled.sum(-1, keepdim=True) < budget)
        return takes.squeeze(-1)

    def _profile(self, view: CacheView, columns: Tensor, mean: Tensor) -> Tensor:
        """(R, H, 1): the first hybrid whose recovered mass, averaged over query rows, reaches ``recovery``.

        For a set S and a window W it is (Σ_S c + Σ_not-S c^W) / T, with column sums c and their band c^W.
        """
        sizes = self._sizes(view, view.lengths)
        static = self._static(view)
        heavy = static[1] | _best(mean, view, ~static[1], sizes.heavy)
        local = static[1] | _best(mean, view, ~static[1] & ~sizes.in_window(view), sizes.heavy)
        band = view.attention.received_within(sizes.window)
        masses = [(columns * chosen).sum(-1) for chosen in (*static, heavy)] + [
            torch.where(local, columns, band).sum(-1)
        ]
        reached = torch.stack(masses, -1) >= self.recovery * view.seen
        return torch.where(reached.any(-1), reached.int().argmax(-1) + 1, FULL).unsqueeze(-1)

    def _filling(self, view: CacheView, mean: Tensor) -> Tensor:
        """(R, H, N) bool: the hybrid's set, with shares of the length of `_made_for`."""
        sizes = self._sizes(view, self._made_for(view))
        special, marked = self._static(view)
        hybrid, recent = _hybrid(view), sizes.in_window(view)
        taken = marked | (recent & (hybrid == WINDOW))
        kept = torch.where(hybrid >= PUNCTUATION, marked, special)
        kept = torch.where(hybrid >= HEAVY, taken | _best(mean, view, ~taken, sizes.heavy), kept)
        return torch.where(hybrid == FULL, view.filled, kept) & view.filled

    def _with_room(self, view: CacheView, score: Tensor) -> Tensor:
        """(R, H, N) bool: all slots but the worst unprotected one of each head that is full and ranks its slots."""
        hybrid, held = _hybrid(view), view.filled.sum(-1, keepdim=True)
        ranks = ((hybrid == HEAVY) | (hybrid == WINDOW)) & ~self._exempt(view, hybrid)
        evicts = ranks & (held >= self._head_budget(view)) & (view.attention.rows("all") > 0)  # some rows wait
        first = view.seen - self._shares(view).window  # the window counts the new token
        recent = (hybrid == WINDOW) & (view.positions > first)
        _, marked = self._static(view)
        sinks = view.filled & (view.positions < self.sinks)
        return keep_best_of_each(priorities(score, view, sinks, marked | recent), view, held - evicts.long())

    def _head_budget(self, view: CacheView) -> Tensor:
        """(R, H, 1) int64: slots a head may hold when a token arrives; each punctuation token adds one."""
        place = torch.arange(view.token_ids.shape[1], device=view.token_ids.device)
        special = self._is("special_ids", view.token_ids) & (place < view.per_row(view.prompt_lengths)[:, 0])
        marks = self._is("punctuation_ids", view.token_ids) & (place < view.seen[:, 0])
        special_count, mark_count = (found.sum(-1).view(-1, 1, 1) for found in (special, marks))
        hybrid, shares = _hybrid(view), self._shares(view)
        size = self.sinks + special_count + mark_count * (hybrid >= PUNCTUATION)
        size = size + shares.heavy * ((hybrid == HEAVY) | (hybrid == WINDOW))
        return size + shares.window * (hybrid == WINDOW)

    def _exempt(self, view: CacheView, hybrid: Tensor) -> Tensor:
        """(R, H, 1) bool: heads that admit the new token whatever their budget."""
        arriving = view.token_ids.gather(-1, view.seen[..., 0])
        marks = self._is("punctuation_ids", arriving).unsqueeze(-1)
        return (hybrid == FULL) | ((hybrid >= PUNCTUATION) & marks)

    def _static(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """(R, H, N) bool: sinks and the prompt's special tokens; the same with punctuation."""
        tokens = view.token_ids.unsqueeze(1).expand(-1, view.positions.shape[1], -1)
        tokens = tokens.gather(-1, view.positions.clamp(min=0).long())
        in_prompt = view.positions < view.per_row(view.prompt_lengths)
        special = (view.positions < self.sinks) | (self._is("special_ids", tokens) & in_prompt)
        return view.filled & special, view.filled & (special | self._is("punctuation_ids", tokens))

    def _is(self, kind: str, tokens: Tensor) -> Tensor:
        ids = getattr(self, kind)
        if ids is None:
            raise PolicyError(
                f"fastgen does not know the tokenizer: set policy.structure.{kind} to a list of token ids."
            )
        table = _members(ids, tokens.device)
        return table[tokens.clamp(max=len(table) - 1)]

    def _made_for(self, view: CacheView) -> tuple[int, ...]:
        """Tokens per row: the larger of budget and prompt. Before attention the engine has set one slot aside."""
        aside = 0 if view.phase == "prompt" else 1
        return tuple(max(b + aside, prompt) for b, prompt in zip(view.budgets, view.prompt_lengths, strict=True))

    def _sizes(self, view: CacheView, lengths: tuple[int, ...]) -> _Sizes:
        """Sizes of a mask over so many tokens: heavy hitters rounded up, the window down but never empty."""
        heavy = tuple(ceil(as_written(self.heavy_frac) * length) for length in lengths)
        window = tuple(max(1, floor(as_written(self.window_frac) * length)) for length in lengths)
        return _Sizes(view.per_row(heavy), view.per_row(window))

    def _shares(self, view: CacheView) -> _Sizes:
        """Sizes of a head's budget in decode: rounded half to even."""
        shares = (as_written(self.heavy_frac), as_written(self.window_frac))
        lengths = self._made_for(view)
        return _Sizes(*(view.per_row(tuple(round(share * length) for length in lengths)) for share in shares))

    def _ring_index(self, view: CacheView) -> Tensor:
        """(R, 1, 1): the length of the text, so that a step overwrites the one ``history`` steps earlier."""
        return view.per_row(tuple(length % self.history for length in view.lengths))


class _Sizes(NamedTuple):
    heavy: Tensor  # (R, 1, 1) int64 slots
    window: Tensor

    def in_window(self, view: CacheView) -> Tensor:
        """(R, H, N) bool: the newest tokens, the last query's own included."""
        return view.positions >= view.seen - self.window


def _hybrid(view: CacheView) -> Tensor:
    """(R, H, 1) int64: the head's hybrid; new slots do not carry it yet."""
    return view.state["hybrid"].masked_fill(~view.filled, 0).amax(-1, keepdim=True).long()


def _best(score: Tensor, view: CacheView, eligible: Tensor, count: Tensor) -> Tensor:
    """(R, H, N) bool: the ``count`` (R, 1, 1) best of the eligible slots, the newer on ties (1.3)."""
    eligible = eligible & view.filled
    ranked = torch.where(eligible, priorities(score, view, None, None), -1)
    return eligible & (ranked.argsort(dim=-1, descending=True).argsort(dim=-1) < count)


@lru_cache(maxsize=16)
def _members(ids: tuple[int, ...], device: torch.device) -> Tensor:
    """(largest id + 2,) bool by token id; the last entry stands for all larger ids."""
    table = torch.zeros(max(ids, default=-1) + 2, dtype=torch.bool, device=device)
    table[list(ids)] = True
    return table
