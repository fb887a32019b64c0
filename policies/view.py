"""What a policy is shown: one layer's cache at the moment of a decision, for the rows under that policy.

Before a run it is shown the model's shape too, for parts that do not work on every model (`Fitted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

AttentionRows = int | Literal["all"]
Phase = Literal["prompt", "decode"]


class PolicyError(ValueError):
    """A policy that cannot be built or cannot work as asked. The message is a sentence with the remedy."""


class Attention(Protocol):
    """Attention of the current chunk over the view's slots. Each statistic is computed when it is first asked for.

    ``last_rows`` counts the chunk's newest query rows; a shorter chunk has fewer (policies.md A-06). Arithmetic is
    fp32 whatever the model's dtype (1.7). Empty slots receive 0.
    """

    def received(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, N): probabilities averaged over the query group, summed over rows."""
        ...

    def received_by_head(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, G, N): as ``received`` before the mean over the query group."""
        ...

    def received_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, N): what earlier queries (R, H·G, w, D) of the tokens ``asked`` (R, w) give to these slots.

        Each attends to the slots of tokens up to its own; ``asked`` = -1 marks a place without a query.
        """
        ...

    def probabilities_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, w, N): as ``received_from`` before the sum over queries. Ask for a few queries at a time."""
        ...

    def received_within(self, distance: Tensor) -> Tensor:
        """(R, H, N): as ``received("all")``, but only from queries less than ``distance`` (R, 1, 1) tokens away."""
        ...

    def strongest(self, last_rows: int) -> Tensor:
        """(R, N): per row the largest probability over all query heads, averaged over rows (K-VEC's I)."""
        ...

    def queries(self, last_rows: AttentionRows) -> Tensor:
        """(R, H·G, m, D): the rotated queries themselves, right-aligned."""
        ...

    def rows(self, last_rows: AttentionRows) -> Tensor:
        """(R, 1, 1): how many query rows there really were."""
        ...


@dataclass(frozen=True)
class Rotation:
    """The model's rotary table for positions 0 … P - 1: ``cos`` and ``sin`` (P, D / 2) fp32, in the halves convention.

    Queries and keys of a view are rotated; with this a scorer takes the rotation off again, or foresees a later one.
    """

    cos: Tensor
    sin: Tensor

    def taken_off(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """``vectors`` (…, D) that stand at ``positions`` (…) as they were before, fp32. Below 0: as they are."""
        index = positions.clamp(min=0).long().flatten()
        shape = (*positions.shape, -1)
        return turned(
            vectors, self.cos.index_select(0, index).view(shape), -self.sin.index_select(0, index).view(shape)
        )

    def mean(self, start: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Mean cosines and sines (R, D / 2) of ``count`` positions from ``start`` (R,) on."""
        index = (start.view(-1, 1) + torch.arange(count, device=start.device)).clamp(max=len(self.cos) - 1)
        return self.cos[index].mean(1), self.sin[index].mean(1)


def turned(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``vectors`` (…, D) rotated, fp32; ``cos`` and ``sin`` (…, D / 2) may be means over several rotations."""
    first, second = vectors.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


@dataclass(frozen=True)
class CacheView:
    """One layer's slots, old ones first and the new chunk last, in no particular order of position.

    Shapes (``R`` rows, ``H`` KV heads, ``N`` slots of this view, ``D`` head dim): an empty slot has position -1,
    and whatever keys, values and state were left in it. Tuples hold one host number per row.

    A policy that does not look at layers one by one may be shown all of them at once (``all_layers``): to it, a row in
    another layer is one more row, and row r · L + l of the view is row r in layer l.
    """

    keys: Tensor  # (R, H, N, D), rotated as they are attended to
    values: Tensor  # (R, H, N, D)
    positions: Tensor  # (R, H, N) int32, the token's place in its sequence; -1 = empty
    attention: Attention
    state: Mapping[str, Tensor]  # the scorer's own by the names it declared: (R, H, N, …), or (R, …) if per row
    counts: tuple[int, ...]  # filled slots, the same for all heads (ragged caches: the fullest head)
    lengths: tuple[int, ...]  # tokens seen so far, evicted ones included
    budgets: tuple[int, ...]  # slots to persist per layer and KV head
    layer: int = 0  # of all rows; meaningless where all layers are shown
    layers: int = 1  # L, of the model
    all_layers: bool = False  # whether the rows lie in all layers, see above
    phase: Phase = "prompt"
    prompt_lengths: tuple[int, ...] = ()  # tokens of the whole prompt
    token_ids: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # (R, T) int64, the sequence so far
    arriving: Tensor = field(default_factory=lambda: torch.zeros(0))  # (R, H, m, D) keys of the chunk
    future: Tensor | None = None  # (R, H, N) attention from later queries of the dense run, for the oracle only
    kept_before: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # (R, T) see Scorer
    seen_now: Tensor | None = None  # (R, 1, 1) int64, `lengths` where the engine has them on the device
    is_full: bool = False  # whether no slot is empty, as far as can be known without asking the device
    repetition: Tensor | None = None  # (R, L, H, T) fp32, for scorers with `reads_repetition`; see KVzip
    rotation: Rotation | None = None  # for scorers with `reads_rotation`
    output_heads: Callable[[int], Tensor] | None = None  # by layer (H, G, D, E) fp32, its W_O, for `reads_output`
    made_once: Callable[[tuple[int, ...]], Tensor] | None = None  # the engine's `per_row`, which keeps what it made

    @cached_property
    def filled(self) -> Tensor:
        """(R, H, N) bool: slots that hold a token."""
        return self.positions >= 0

    @property
    def seen(self) -> Tensor:
        """(R, 1, 1) int64: ``lengths`` as a tensor, which a CUDA graph can read anew in every step."""
        return self.per_row(self.lengths) if self.seen_now is None else self.seen_now

    @property
    def row_layers(self) -> Tensor:
        """(R, 1, 1) int64: the layer that each row lies in."""
        rows = len(self.positions)
        own = tuple(range(self.layers)) * (rows // self.layers) if self.all_layers else (self.layer,) * rows
        return self.per_row(own)

    def by_layer(self) -> Iterator[tuple[int, slice]]:
        """The layers shown, each with its rows."""
        if not self.all_layers:
            yield self.layer, slice(None)
            return
        for layer in range(self.layers):
            yield layer, slice(layer, None, self.layers)

    def per_row(self, numbers: tuple[int, ...]) -> Tensor:
        """One host number per row as a (R, 1, 1) int64 tensor on the cache's device; not to be written to."""
        if self.made_once is not None:
            return self.made_once(numbers)
        return self.positions.new_tensor(numbers).long().view(-1, 1, 1)


@dataclass(frozen=True)
class ModelShape:
    """Layers, and heads in each of them: what is known of a model before its weights are loaded."""

    layers: int
    kv_heads: int
    query_heads: int


@runtime_checkable
class Fitted(Protocol):
    """A part of a policy that does not work on every model. Parts that do leave the method out."""

    def reason_against_model(self, shape: ModelShape) -> str:
        """Why it cannot work on such a model, as a sentence with the remedy; empty where it can."""
        ...
