"""What a scorer is: a pure function from one layer's cache to one number per slot, larger = keep.

Scorers that look at whole keys or values in fp32 do so in tiles of rows (`tiles`): a policy is shown all layers at
once, and an fp32 copy of all their keys would take as much memory as the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from policies.view import CacheView, Fitted, ModelShape, PolicyError

ON_A_PROCESSOR = 2**20  # numbers of a tile: so many in fp32 stay in the processor's cache
ON_A_GPU = 2**23  # the same for a GPU, and enough to keep it busy


@dataclass(frozen=True)
class SlotState:
    """A tensor that a scorer carries from chunk to chunk, per slot and KV head; new slots start at zero."""

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32

    @property
    def nbytes(self) -> int:
        """Bytes per slot and KV head."""
        return prod(self.shape) * self.dtype.itemsize


class Scorer(Protocol):
    """A frozen dataclass. The engine owns all tensors; a scorer only says how they change.

    Optional, ``carried: tuple[str, ...]``: names of tensors carried per row instead of per slot, (R, …) each. They are
    what `update` returned last time, and absent at the first chunk. ``counts_layers: bool``: whether the view shall
    say in ``kept_before`` (R, T) how many earlier layers of this pass kept each token. ``layers_as_rows: bool``:
    whether all layers can be shown at once: it reads none of ``view.layer`` (``view.row_layers`` and ``view.by_layer``
    say where rows lie), ``view.token_ids`` and ``view.repetition``. ``same_state_for_all_budgets: bool``: whether
    ``update`` does not read ``view.budgets``, so that rows under several budgets share it while they share a prompt.
    ``reads_rotation`` and ``reads_output: bool``: whether the view shall hold the model's rotary table
    (``view.rotation``, over ``foresees`` positions more than the text has, 0 if not said) and its output projection
    (``view.output_heads``). ``reads_repetition: bool``: whether the model shall repeat the prompt, in pieces of
    ``chunk`` tokens beside the protected sinks, and the view hold what slots received (``view.repetition``).
    ``query_rows(view)``: (R, 1, 1), over how many queries the scores are sums, where that is a known number above one.
    """

    @property
    def state(self) -> Mapping[str, SlotState]:
        """The tensors carried per slot, by name; empty for most."""
        ...

    @property
    def nonnegative(self) -> bool:
        """Whether scores are a non-negative mass, as value corrections such as CAOTE require."""
        ...

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """Everything carried, after this chunk. Called for every chunk, only where something is carried."""
        ...

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N) fp32, larger = keep. Values at empty slots are ignored."""
        ...


@runtime_checkable
class AttentionFree(Protocol):
    """A scorer whose evictions never depend on attention: those of a whole prompt are known before it is attended."""

    def eviction_steps(self, view: CacheView, sinks: int, recent: int) -> Tensor:
        """(R, H, T) int64: the position of the token that evicts each one; larger than any position for survivors.

        ``view`` holds a whole prompt, in order of position and without padding; its first ``budget`` tokens fill the
        cache, the others are fed one by one in the order "evict, append, attend".
        """
        ...


class Stateless:
    """Defaults for scorers that read nothing but the current cache."""

    state: ClassVar[Mapping[str, SlotState]] = {}
    carried: ClassVar[tuple[str, ...]] = ()
    nonnegative: ClassVar[bool] = False

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """Never called: there is no state."""
        return {}


class OverScorer:
    """Base of scorers that rework what another one, their field ``base``, says. What they need and carry is its."""

    base: Any

    @property
    def layers_as_rows(self) -> bool:
        """As the base."""
        return getattr(self.base, "layers_as_rows", False)

    @property
    def same_state_for_all_budgets(self) -> bool:
        """As the base."""
        return getattr(self.base, "same_state_for_all_budgets", False)

    @property
    def counts_layers(self) -> bool:
        """As the base."""
        return getattr(self.base, "counts_layers", False)

    @property
    def reads_rotation(self) -> bool:
        """As the base."""
        return getattr(self.base, "reads_rotation", False)

    @property
    def reads_output(self) -> bool:
        """As the base."""
        return getattr(self.base, "reads_output", False)

    @property
    def reads_repetition(self) -> bool:
        """As the base."""
        return getattr(self.base, "reads_repetition", False)

    @property
    def chunk(self) -> int:
        """As the base, where that lets the prompt be repeated."""
        return int(self.base.chunk)

    @property
    def foresees(self) -> int:
        """As the base."""
        return getattr(self.base, "foresees", 0)

    @property
    def carried(self) -> tuple[str, ...]:
        """As the base."""
        return getattr(self.base, "carried", ())

    def check_base(self, name: str) -> None:
        """Raise `PolicyError` where the base is no scorer."""
        if not callable(getattr(self.base, "score", None)):
            raise PolicyError(
                f"{name} base={self.base!r} is no scorer: give the name of one, or {{name: snapkv, window: 16}}."
            )

    @property
    def state(self) -> Mapping[str, SlotState]:
        """Of the base."""
        per_slot: Mapping[str, SlotState] = self.base.state
        return per_slot

    @property
    def nonnegative(self) -> bool:
        """As the base."""
        return bool(self.base.nonnegative)

    def reason_against_model(self, shape: ModelShape) -> str:
        """Of the base, where it does not work on every model."""
        return self.base.reason_against_model(shape) if isinstance(self.base, Fitted) else ""

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """Of the base."""
        carried: Mapping[str, Tensor] = self.base.update(view)
        return carried


def tiles(vectors: Tensor) -> list[slice]:
    """The rows of (R, H, N, D) in tiles that are looked at together, of at least one row each."""
    rows = len(vectors)
    numbers = ON_A_PROCESSOR if vectors.device.type == "cpu" else ON_A_GPU
    at_once = max(1, numbers * rows // max(1, vectors.numel()))
    return [slice(start, min(start + at_once, rows)) for start in range(0, rows, at_once)]


def tiles_of_copies(vectors: Tensor) -> list[slice]:
    """As `tiles`, where only an fp32 copy takes memory: one tile with all rows where they are fp32 already."""
    return [slice(0, len(vectors))] if vectors.dtype == torch.float32 else tiles(vectors)
