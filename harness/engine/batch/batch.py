"""A cohort: rows that advance in lockstep, each under its own policy and budget, and their common cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from harness.engine.attention.cache_rope import CacheRope
from harness.engine.attention.mask import AttentionMask
from harness.engine.batch.cache_statistics import CacheStatistics
from harness.engine.batch.evict_all_layers import LayerBatch
from harness.engine.batch.feed import Feed, HiddenLengths, Watcher
from harness.engine.batch.group import Chunk, Group, Phase, groups_of
from harness.engine.cache.ragged_layer import RaggedLayer
from harness.engine.cache.slot_layer import SlotCache, SlotLayer, StateKey
from harness.engine.cache.storage import KVStorage
from harness.engine.requests.request import Prompting, Request
from harness.engine.requests.support import reason_against
from policies import CacheView, PolicyError
from policies.view import Attention

if TYPE_CHECKING:
    from harness.engine.batch.layer_pass import LayerPass
    from harness.engine.batch.simulated_blocks import Leader

NUMBERS_KEPT = 256  # tuples of host numbers that stay on the device


class Future(Protocol):
    """What a dense run gives to each place of a text: see `harness.engine.decode.oracle`."""

    def of(self, layer: int, rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """(r, H, T + new): to each place from all passes after the first ``lengths`` tokens of these rows."""
        ...

    def for_rows(self, rows: Sequence[int]) -> Future:
        """Of some of the rows."""
        ...


class ForkProtocol(Protocol):
    """Rows that leave a shared run: see `harness.engine.batch.prefix_sharing.Fork`."""

    def settle(self, work: LayerPass, states: dict[StateKey, Tensor]) -> None:
        """Take along one layer."""
        ...


class Batch:
    """The mutable state of one lockstep run. ``rows`` must be sorted so that equal policies are neighbours.

    Layers are ragged where a policy among the rows needs it, or where ``ragged`` asks for it: a cohort that takes over
    ragged layers keeps them, whoever is left.
    """

    def __init__(
        self,
        rows: Sequence[Request],
        prompting: Prompting,
        layers: int,
        device: torch.device,
        chunks: Sequence[Sequence[Chunk]] | None = None,
        ragged: bool = False,
    ) -> None:
        for reason in (reason_against(row.policy, prompting) for row in rows):
            if reason:
                raise PolicyError(reason)
        self.rows, self.prompting = rows, prompting
        self.device = device
        self.chunks = chunks or [row.chunks(prompting) for row in rows]
        tail = max(stop - start for plan in self.chunks for start, stop in plan[1:] or [(0, 1)])
        capacity = self._capacity()
        self.uniform = not ragged and all(row.policy.uniform for row in rows)
        self.layers = layers
        self.shelf = KVStorage(layers)
        self.cache = SlotCache(
            layers=[
                SlotLayer(capacity, tail, self.shelf, index) if self.uniform else RaggedLayer()
                for index in range(layers)
            ]
        )
        self.counts = [0] * len(rows)  # slots filled, the same for all layers and heads
        self.lengths = [0] * len(rows)  # tokens fed
        self.groups = tuple(groups_of(rows))
        self.counts_layers = any(row.policy.counts_layers for row in rows)
        self.tally = CacheStatistics(rows, self.chunks, layers, device)
        self.feed: Feed
        self.phase: Phase = "prompt"
        self.targets: tuple[int, ...]
        self.seen: Tensor  # (R, 1, 1) int64: `lengths`, this pass included
        self.fold: LayerBatch | None = None  # all layers of the pass at hand, where they settle together
        self.watchers: Sequence[Watcher] = ()
        self.rope: CacheRope | None = None  # positions inside the cache, set by the driver where a policy asks for them
        self._sight: AttentionMask | None = None
        self.passes = 0  # forward passes begun
        self.asks_attention = False  # whether a policy asked for statistics when all layers last settled together
        self.hides_lengths = False  # while a pass is recorded: numbers of the host would stay what they are now
        self._on_device: dict[tuple[int, ...], Tensor] = {}
        self.future: Future | None = None  # for the oracle
        self.leader: Leader | None = None  # reads each pass of a simulated prompt before these rows
        self.fed = torch.zeros(len(rows), max(row.total_tokens for row in rows), dtype=torch.long, device=device)
        # (R, T) int32: layers of this pass that kept a token in some head; only kept for K-VEC
        self.kept_before = torch.zeros(len(rows), 0, dtype=torch.int32, device=device)

    @property
    def fill(self) -> int:
        """Slots in use by the fullest row."""
        return max(self.counts)

    def attend(self, work: LayerPass) -> Tensor:
        """One layer's attention output for the model, (R, m, H·G, D)."""
        return work.attend()

    def begin(self, feed: Feed, phase: Phase) -> None:
        """Fix everything that all layers of this pass share."""
        self.feed, self.phase = feed, phase
        self.passes += 1
        if self.counts_layers:
            self.kept_before = torch.zeros_like(self.fed, dtype=torch.int32)
        if feed.is_even:
            self.fed.scatter_(1, feed.positions.long(), feed.tokens)
        else:
            for row, width in enumerate(feed.widths):
                if width:
                    self.fed[row, self.lengths[row] : self.lengths[row] + width] = feed.tokens[row, -width:]
        self.lengths = [length + width for length, width in zip(self.lengths, feed.widths, strict=True)]
        arrived = [count + width for count, width in zip(self.counts, feed.widths, strict=True)]
        limits = list(arrived)
        for group in self.groups:
            if group.evicts(phase):
                limits[group.rows] = group.budgets
        self.arrived = tuple(arrived)
        self.targets = tuple(map(min, arrived, limits))
        if not self._sees_as_before():
            self.forget_sight()
        self.seen = torch.tensor(self.lengths, device=self.device).view(-1, 1, 1)
        self.targets_tensor = self.on_device(self.targets)
        self.fold = LayerBatch.of(self)

    def forget_sight(self) -> None:
        """After the feed has changed."""
        self._sight = None

    def _sees_as_before(self) -> bool:
        """Whether the feed has changed, but not who sees what: the case of steady passes."""
        before = self._sight
        if before is None or not before.plain or not self._is_plain:
            return False
        return (before.fill, before.chunk) == (self.fill, self.feed.width)

    @property
    def _is_plain(self) -> bool:
        """Whether no slot is empty and every row feeds the full width."""
        return self.feed.is_even and self._no_slot_is_empty

    @property
    def _no_slot_is_empty(self) -> bool:
        return min(self.counts) == self.fill

    def is_full(self, rows: slice, slots: int) -> bool:
        """Whether these rows' tokens, the chunk included, occupy all of so many slots in every head."""
        return self.uniform and min(self.arrived[rows]) == slots

    def on_device(self, numbers: tuple[int, ...]) -> Tensor:
        """Host numbers as a (n, 1, 1) int64 tensor that others have, too: not to be written to."""
        if numbers not in self._on_device:
            if len(self._on_device) == NUMBERS_KEPT:
                self._on_device.clear()
            self._on_device[numbers] = torch.tensor(numbers, device=self.device).view(-1, 1, 1)
        return self._on_device[numbers]

    def constants(self) -> tuple[Tensor, ...]:
        """The host numbers that are on the device now."""
        return tuple(self._on_device.values())

    @property
    def prompt_passes(self) -> list[int]:
        """By row: passes until its prompt is read."""
        return [len(plan) for plan in self.chunks]

    @property
    def leaving(self) -> Sequence[ForkProtocol]:
        """Rows that part with this cohort in the pass at hand; only shared runs know any."""
        return ()

    @property
    def keeps_chunk(self) -> bool:
        """Whether what survives of the chunk at hand is stored."""
        return True

    @property
    def folds(self) -> bool:
        """Whether layers may wait with settling for the end of the pass at hand (`Fold`): not without slots."""
        return self.shelf.is_allocated

    def over(self, group: Group) -> list[bool]:
        """Rows of a group whose policy must be asked: those beyond their budget, or any where budgets are ragged."""
        if not group.policy.uniform:
            return [group.evicts(self.phase) and width > 0 for width in self.feed.widths[group.rows]]
        return [held > may for held, may in zip(self.arrived[group.rows], self.targets[group.rows], strict=True)]

    @property
    def someone_evicts(self) -> bool:
        """Whether any row holds more than it may after this pass."""
        return self.arrived != self.targets

    @property
    def shrinks(self) -> bool:
        """Whether a row must give up slots that it held before this pass: a prompt that was read whole, then decode."""
        return self.uniform and any(held > may for held, may in zip(self.counts, self.targets, strict=True))

    @property
    def appends(self) -> bool:
        """Whether the whole chunk simply stays behind the slots, for every row."""
        if not self.uniform:
            return not any(any(self.over(group)) for group in self.groups)
        return not self.someone_evicts and self._is_plain

    def evicts_first(self, group: Group) -> bool:
        """Whether this pass feeds single tokens to a policy that frees their slot before attention."""
        return group.policy.schedule.evict_first and self.feed.width == 1 and self.fill > 0

    def foresees(self, group: Group) -> bool:
        """Whether this pass reads whole prompts that are defined token by token."""
        in_one_pass = self.prompting.regime == "token_fed" and self.phase == "prompt" and self.fill == 0
        return in_one_pass and group.policy.foresees

    def count_kept(self, kept: Tensor, positions: Tensor) -> None:
        """After a layer's selection: one more layer kept each token that some head holds. Shapes (R, H, fill + m)."""
        places = torch.where(kept & (positions >= 0), positions, self.fed.shape[1]).long().flatten(1)
        held = torch.zeros(len(self.rows), self.fed.shape[1] + 1, dtype=torch.bool, device=self.device)
        self.kept_before += held.scatter_(1, places, True)[:, :-1]

    def lengths_of(self, group: Group, layers: int = 1) -> tuple[int, ...]:
        """Tokens that each row of a group was fed, once for each of so many layers, for its policy."""
        if self.hides_lengths:
            return HiddenLengths()
        return tuple(length for length in self.lengths[group.rows] for _ in range(layers))

    def future_of(self, layer: int, group: Group, positions: Tensor) -> Tensor | None:
        """(r, H, n): what the dense run's later passes give to the tokens at these (r, H, n) places."""
        if not group.policy.hindsight:
            return None
        assert self.future is not None
        after_this = self.future.of(layer, range(group.rows.start, group.rows.stop), self.lengths[group.rows])
        return after_this.gather(-1, positions.clamp(min=0).long())

    @property
    def sight(self) -> AttentionMask:
        """Who sees what in this pass, the same in all layers of a uniform cache."""
        if self._sight is None:
            filled = self.on_device(tuple(self.counts)) > torch.arange(self.fill, device=self.device)
            self._sight = self.feed.sight(filled, no_slot_is_empty=self._no_slot_is_empty)
        return self._sight

    def view(
        self, group: Group, layer: int, *, keys: Tensor, values: Tensor, positions: Tensor, attention: Attention,
        state: Mapping[str, Tensor], arriving: Tensor,
    ) -> CacheView:  # fmt: skip
        """What a group's policy is shown of these tensors of its rows, shaped as in `CacheView`."""
        rows = group.rows
        return CacheView(
            keys=keys,
            values=values,
            positions=positions,
            attention=attention,
            state=state,
            counts=self.arrived[rows],
            lengths=self.lengths_of(group),
            seen_now=self.seen[rows],
            is_full=self.is_full(rows, positions.shape[-1]),
            made_once=self.on_device,
            budgets=group.budgets,
            layer=layer,
            layers=self.layers,
            phase=self.phase,
            prompt_lengths=tuple(len(row.tokens) for row in self.rows[rows]),
            token_ids=self.fed[rows],
            arriving=arriving,
            future=self.future_of(layer, group, positions),
            kept_before=self.kept_before[rows],
        )

    def _capacity(self) -> int:
        """Slots that may persist: what the widest row may ever hold."""
        return max(row.capacity for row in self.rows)

    def settle(self) -> None:
        """After the last layer's attention, where layers wait with settling for it."""
        if self.fold is not None:
            self.fold.settle()
            self.fold = None  # and what it held of the pass

    def finish(self) -> None:
        """After all layers have settled: the slots now filled."""
        self.counts = list(self.targets)
        self.tally.close_step()
