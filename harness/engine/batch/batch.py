"""A batch: rows that run through the model in lockstep, each under its own policy and budget, and their common cache.

`Batch` holds what lasts from pass to pass (rows, slots, counts, statistics) and, between `begin` and `finish`, the
current pass: what is fed, the slots that each row may keep after it (`targets`), and the views shown to policies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.attention.mask import AttentionMask
from harness.engine.attention.model_parts import CacheRope
from harness.engine.batch.cache_statistics import CacheStatistics
from harness.engine.batch.feed import Feed, HiddenLengths, Watcher
from harness.engine.batch.group import Chunk, Group, Phase, groups_of
from harness.engine.batch.layer_batch import LayerBatch
from harness.engine.cache.ragged_layer import RaggedLayer
from harness.engine.cache.slot_layer import SlotCache, SlotLayer
from harness.engine.cache.storage import KVStorage
from harness.engine.requests import Prompting, Request, reason_against
from policies import CacheView, PolicyError
from policies.view import Attention, AttentionRows, Rotation

if TYPE_CHECKING:
    from harness.engine.batch.layer_pass import LayerPass
    from harness.engine.batch.prefix_sharing import Fork
    from harness.engine.batch.simulated_blocks import Leader
    from harness.engine.decode.look_ahead import Future

NUMBERS_KEPT = 256  # at most so many tuples of host numbers stay on the device


class Batch:
    """The mutable state of one lockstep run. ``rows`` must be sorted so that equal policies are neighbours.

    Layers are ragged where a policy of the rows needs it, or where ``ragged`` says so: a batch merged from ragged ones
    stays ragged, whatever rows are left.
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
        self.rows, self.prompting, self.layers, self.device = rows, prompting, layers, device
        self.chunks = chunks or [row.chunks(prompting) for row in rows]
        self.groups = tuple(groups_of(rows))  # with the budgets of the current pass
        self.grows = any(row.so_far for row in rows)
        self.uniform = not ragged and all(row.policy.uniform for row in rows)
        self.counts_layers = any(row.policy.counts_layers for row in rows)
        self.watchers: Sequence[Watcher] = ()
        self.rotation: Rotation | None = None  # the model's rotary table, set by the engine where a policy reads it
        self.output_heads: Callable[[int], Tensor] | None = None  # by layer, W_O, where a policy reads it
        self.rope: CacheRope | None = None  # positions inside the cache, set by the engine where a policy asks for them
        self.future: Future | None = None  # for the oracle
        self.repetitions: Sequence[Tensor | None] = ()  # by row (L, H, T), of prompts that were repeated
        self.leader: Leader | None = None  # reads each pass of a simulated prompt before these rows

        # The cache, and what is known of it on the host.
        tail = max(
            *(stop - start for plan in self.chunks for start, stop in plan[1:] or [(0, 1)]),
            *(len(piece) for row in rows for piece in row.question_pieces(prompting)),
            1,
        )
        capacity = self._capacity()
        self.storage = KVStorage(layers)
        self.cache = SlotCache(
            layers=[
                SlotLayer(capacity, tail, self.storage, index) if self.uniform else RaggedLayer()
                for index in range(layers)
            ]
        )
        self.counts = [0] * len(rows)  # slots filled, the same for all layers and heads
        self.lengths = [0] * len(rows)  # tokens fed
        self.passes = 0  # forward passes begun
        self.fed = torch.zeros(len(rows), max(row.total_tokens for row in rows), dtype=torch.long, device=device)
        self.statistics = CacheStatistics(rows, self.chunks, layers, device)
        self._on_device: dict[tuple[int, ...], Tensor] = {}

        # The current pass, set by `begin`.
        self.phase: Phase = "prompt"
        self.feed: Feed
        self.arrived: tuple[int, ...]  # by row: slots in use, the chunk included
        self.targets: tuple[int, ...]  # by row: slots that may be in use after the pass
        self.targets_tensor: Tensor  # (R, 1, 1) int64: the same on the device
        self.seen: Tensor  # (R, 1, 1) int64: `lengths`, this pass included
        self.layer_batch: LayerBatch | None = None  # this pass in all layers, where they evict together
        self._mask: AttentionMask | None = None
        self._masked: Hashable = None  # slots and tokens of each row, of which the mask was made
        # Of how many last query rows policies read attention statistics when all layers last evicted together.
        self.asked_rows: frozenset[AttentionRows] = frozenset()
        self.hides_lengths = False  # while a pass is recorded, where host numbers would be frozen
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
        if self.grows and phase == "decode":
            self.groups = tuple(group.after(self.rows[group.rows], self.lengths[group.rows]) for group in self.groups)
        arrived = [count + width for count, width in zip(self.counts, feed.widths, strict=True)]
        targets = list(arrived)
        for group in self.groups:
            if not group.state_only:
                targets[group.rows] = group.limits(phase, arrived[group.rows])
        self.arrived, self.targets = tuple(arrived), tuple(targets)
        if not self._mask_is_unchanged():
            self.forget_mask()
            self._masked = self._slots_and_tokens
        self.seen = torch.tensor(self.lengths, device=self.device).view(-1, 1, 1)
        self.targets_tensor = self.on_device(self.targets)
        self.layer_batch = LayerBatch.of(self)

    def forget_mask(self) -> None:
        """To be called where the feed is replaced."""
        self._mask = None

    def _mask_is_unchanged(self) -> bool:
        """Whether the mask of the last pass holds for this one: that of steps in which every row is at its budget."""
        return self._masked == self._slots_and_tokens

    @property
    def _slots_and_tokens(self) -> Hashable:
        return tuple(self.counts), self.feed.widths, self.feed.width

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
        """Host numbers as a (n, 1, 1) int64 tensor, which is shared: not to be written to."""
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
    def forks(self) -> Sequence[Fork]:
        """Rows that leave this batch after the current pass; only a `PrefixBatch` has any."""
        return ()

    @property
    def keeps_chunk(self) -> bool:
        """Whether what survives of the current chunk is stored."""
        return True

    @property
    def defers_eviction(self) -> bool:
        """Whether layers may evict together at the end of the current pass (`LayerBatch`): not before slots exist."""
        return self.storage.is_allocated

    def over(self, group: Group) -> list[bool]:
        """Per row of a group, whether its policy must select: it is beyond its budget, or its policy is ragged."""
        if not group.policy.uniform:
            return [group.evicts(self.phase) and width > 0 for width in self.feed.widths[group.rows]]
        return [held > may for held, may in zip(self.arrived[group.rows], self.targets[group.rows], strict=True)]

    @property
    def any_evicts(self) -> bool:
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
        return not self.any_evicts and self._is_plain

    def evicts_first(self, group: Group) -> bool:
        """Whether this pass feeds single tokens to a policy that frees their slot before attention."""
        return group.policy.schedule.evict_first and self.feed.width == 1 and self.fill > 0

    def reads_token_fed_whole(self, group: Group) -> bool:
        """Whether this pass reads whole prompts that are defined token by token."""
        in_one_pass = self.prompting.regime == "token_fed" and self.phase == "prompt" and self.fill == 0
        return in_one_pass and group.policy.attention_free

    def count_kept(self, kept: Tensor, positions: Tensor) -> None:
        """After a layer's selection: add one for each token that some head keeps. Shapes (R, H, fill + m)."""
        by_token = torch.where(kept & (positions >= 0), positions, self.fed.shape[1]).long().flatten(1)
        held = torch.zeros(len(self.rows), self.fed.shape[1] + 1, dtype=torch.bool, device=self.device)
        self.kept_before += held.scatter_(1, by_token, True)[:, :-1]

    def lengths_of(self, group: Group, layers: int = 1) -> tuple[int, ...]:
        """Tokens that each row of a group was fed, repeated for so many layers."""
        if self.hides_lengths:
            return HiddenLengths()
        return tuple(length for length in self.lengths[group.rows] for _ in range(layers))

    def future_of(self, group: Group, positions: Tensor, layer: int | None = None) -> Tensor | None:
        """(r, H, n): what the tokens at these ``positions`` (r, H, n) receive in the later passes of the dense run.

        Without a layer, in all of them: ``positions`` (r · L, H, n).
        """
        if not group.policy.hindsight:
            return None
        assert self.future is not None
        after_this = self.future.of(range(group.rows.start, group.rows.stop), self.lengths[group.rows], layer)
        return after_this.gather(-1, positions.clamp(min=0).long())

    def repetition_of(self, group: Group) -> Tensor | None:
        """(r, L, H, T), shorter prompts padded: what slots received while the prompts were repeated."""
        if group.policy.repeats is None or not self.repetitions:
            return None
        own = [each for each in self.repetitions[group.rows] if each is not None]
        longest = max(each.shape[-1] for each in own)
        return torch.stack([F.pad(each, (0, longest - each.shape[-1])) for each in own])

    @property
    def mask(self) -> AttentionMask:
        """The attention mask of this pass, the same in all layers of a uniform cache."""
        if self._mask is None:
            filled = self.on_device(tuple(self.counts)) > torch.arange(self.fill, device=self.device)
            self._mask = self.feed.mask(filled, no_slot_is_empty=self._no_slot_is_empty)
        return self._mask

    def view(
        self, group: Group, layer: int, *, keys: Tensor, values: Tensor, positions: Tensor, attention: Attention,
        state: Mapping[str, Tensor], arriving: Tensor,
    ) -> CacheView:  # fmt: skip
        """These tensors of a group's rows as its policy is shown them, shaped as in `CacheView`."""
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
            future=self.future_of(group, positions, layer),
            repetition=self.repetition_of(group),
            kept_before=self.kept_before[rows],
            rotation=self.rotation,
            output_heads=self.output_heads,
        )

    def _capacity(self) -> int:
        """Slots per layer and head: the most that any row may persist."""
        return max(row.capacity for row in self.rows)

    def evict_deferred(self) -> None:
        """Evict in all layers, where they have waited for the end of the pass."""
        if self.layer_batch is not None:
            self.layer_batch.evict()
            self.layer_batch = None  # it holds queries of all layers

    def finish(self) -> None:
        """End the pass, after all layers have evicted: note how many slots are filled now."""
        self.counts = list(self.targets)
        self.statistics.close_step()

    def release(self) -> None:
        """Give back the slots, when all rows have moved to another batch. This one must not be used any more."""
        self.storage, self.cache = KVStorage(0), SlotCache(layers=[])
