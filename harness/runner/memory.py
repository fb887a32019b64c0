"""How much memory rows need, computed before they run: stored slots, the tail of a chunk, and a workspace.

    peak = weights + slots + workspace
    slots = (shared prompts' slots + Σ over rows (N + B)) × bytes of one slot over all layers

The workspace is an upper bound of what exists at one time beside the slots: activations of the widest pass in one
layer, what waits where layers evict together, scores and selection of all slots, a tile of keys or values in fp32,
masks, softmax rows of one tile, and logits. `scripts/bench` measures the peak against it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch

from harness.engine.attention.attend import ATTENDED_PER_TILE, NUMBERS_PER_TILE, ROWS_PER_TILE
from harness.engine.attention.model_parts import head_width, kv_heads
from harness.engine.batch.prefix_sharing import last_shared_pass
from harness.engine.requests import Prompting, Request
from policies.scorer import ON_A_GPU, ON_A_PROCESSOR

SHARE_OF_FREE_MEMORY = 0.6  # the rest is left to the allocator's gaps and to everyone else
PER_SELECTED_SLOT = 48  # bytes: a score in fp32, its integer of 64 bits in the making, masks, a state
ON_A_PROCESSOR_AT_LEAST = 2 * 2**30  # bytes
ON_A_PROCESSOR_AT_MOST = 4 * 2**30  # bytes; wider runs are not faster there
SHARE_OF_A_PROCESSORS_MEMORY = 0.4  # of all its memory, where one run has all its cores
# Multiplications and additions of one batch on a processor, a minute or two on two cores: what a batch has computed is
# stored when it ends.
WORK_ON_A_PROCESSOR = 8e12


def linear_parameters(config: Any) -> int:
    """Parameters of the linear layers that every token passes, output layer left out."""
    attention = 2 * config.hidden_size * head_width(config) * (config.num_attention_heads + kv_heads(config))
    return int(config.num_hidden_layers * (attention + 3 * config.hidden_size * config.intermediate_size))


@dataclass(frozen=True)
class Footprint:
    """A model's bytes: K, V and position of one slot over all layers and heads, and what a pass needs beside them."""

    slot: int
    token: int  # activations of one token in the widest moment of a layer
    waiting: int  # keys, values and queries of one token in all layers (`harness.engine.batch.layer_batch`)
    selecting: int  # scores, statistics and selection of one slot over all layers and heads
    vector: int  # numbers of the keys of one slot over all layers and heads
    query_heads: int
    group: int
    vocabulary: int
    itemsize: int
    weights: int  # of the linear layers, each multiplied and added once for a token

    @staticmethod
    def of(config: Any, dtype: str) -> Footprint:
        """From a transformers text configuration and a torch dtype's name."""
        itemsize = getattr(torch, dtype).itemsize
        queries = config.num_attention_heads
        heads = kv_heads(config)
        width = head_width(config)
        inner = 4 * config.hidden_size + 3 * config.intermediate_size + 3 * (queries + 2 * heads) * width
        return Footprint(
            slot=config.num_hidden_layers * heads * (2 * width * itemsize + 4),
            token=inner * itemsize,
            waiting=config.num_hidden_layers * 2 * (queries + heads) * width * itemsize,  # queries twice: then stacked
            selecting=config.num_hidden_layers * heads * (PER_SELECTED_SLOT + 8 * (queries // heads)),
            vector=config.num_hidden_layers * heads * width,
            query_heads=queries,
            group=queries // heads,
            vocabulary=config.vocab_size,
            itemsize=itemsize,
            weights=linear_parameters(config),
        )


@dataclass(frozen=True)
class RowLoad:
    """What one row adds to a `MemoryLoad`, as plain numbers that can be written to a file."""

    prompt: int  # a hash of its tokens: the shared part of a prompt counts once
    capacity: int  # slots that it keeps at most
    tail: int  # tokens of its widest pass after the first
    shared: int  # slots while its prompt is read together with other rows
    first: int  # tokens of its widest pass until then
    seen: int  # slots and tokens that one of its queries meets
    hindsight: int = 0  # bytes that it needs of its prompt's dense run

    @staticmethod
    def of(row: Request, prompting: Prompting, hindsight: int = 0) -> RowLoad:
        """The numbers of a request. ``hindsight``: bytes."""
        plan = row.chunks(prompting)
        after = last_shared_pass(row, prompting)
        alone = len(plan) if after is None else after + 1
        return RowLoad(
            prompt=hash(tuple(row.tokens)),  # of integers: the same in every process
            capacity=row.capacity,
            tail=max([_widest(plan[1:]), *(len(piece) for piece in row.question_pieces(prompting))]),
            shared=plan[alone - 1][0] + _widest(plan[:alone]),
            first=_widest(plan[:alone]),
            seen=min(len(row.tokens), row.capacity + _widest(plan)),
            hindsight=hindsight,
        )


class MemoryLoad:
    """What rows take together beside the weights, added up row by row; the shared part of a prompt counts once."""

    def __init__(self, footprint: Footprint) -> None:
        self.footprint = footprint
        self.rows = 0
        self.slots = 0  # of the rows themselves, tails included
        self.shared: dict[int, int] = {}  # by prompt: slots of the shared run
        self.first: dict[int, int] = {}  # by prompt: tokens of its widest shared pass
        self.hindsight: dict[int, int] = {}  # by prompt: bytes
        self.tail = 0  # tokens of the widest pass after sharing
        self.seen = 0  # slots and tokens that one query row meets

    def with_row(self, row: Request, prompting: Prompting, hindsight: int = 0) -> MemoryLoad:
        """The same and one row more. ``hindsight``: bytes that it needs of its prompt's dense run."""
        return self.with_loads([RowLoad.of(row, prompting, hindsight)])

    def with_loads(self, rows: Iterable[RowLoad]) -> MemoryLoad:
        """The same and some rows more."""
        load = copy(self)
        load.shared, load.first, load.hindsight = dict(self.shared), dict(self.first), dict(self.hindsight)
        for row in rows:
            load.rows += 1
            load.slots += row.capacity + row.tail
            load.shared[row.prompt] = max(load.shared.get(row.prompt, 0), row.shared)
            load.first[row.prompt] = max(load.first.get(row.prompt, 0), row.first)
            load.hindsight[row.prompt] = max(load.hindsight.get(row.prompt, 0), row.hindsight)
            load.tail = max(load.tail, row.tail)
            load.seen = max(load.seen, row.seen)
        return load

    @property
    def reading(self) -> int:
        """Tokens of the widest pass."""
        return max(sum(self.first.values()), self.rows * self.tail)

    @property
    def workspace(self) -> int:
        """Bytes beside weights and slots."""
        model = self.footprint
        rows = max(len(self.first), self.rows if self.tail > 1 else 1)
        chunk = max(self.tail, *self.first.values())
        # Layers that evict together fill a tile even with one row; its copies are those of a chain of operations.
        # On a processor attention is computed in wider tiles, of as few rows as fill one.
        wide = max(rows * min(ROWS_PER_TILE, chunk), min(ATTENDED_PER_TILE, chunk))
        tile = model.query_heads * wide * self.seen
        softmax = 4 * max(3 * tile, 5 * NUMBERS_PER_TILE)
        mask = 0 if chunk == self.seen else model.itemsize * rows * model.group * chunk * self.seen
        logits = 8 * self.rows * model.vocabulary
        waiting = self.rows * self.tail * model.waiting
        at_once = ON_A_PROCESSOR if model.itemsize == 4 else ON_A_GPU  # the type says where a model is likely to be
        copies = 8 * min(at_once, self.slots * model.vector)
        return self.reading * model.token + waiting + self.slots * model.selecting + copies + softmax + mask + logits

    @property
    def bytes(self) -> int:
        """Slots, hindsight and workspace."""
        slots = self.slots + sum(self.shared.values())
        return slots * self.footprint.slot + sum(self.hindsight.values()) + self.workspace


def allowed_tokens(footprint: Footprint, device: torch.device) -> float:
    """Tokens that a batch may be fed on this device, shared prompts counted for every row; no limit on a GPU."""
    return float("inf") if device.type == "cuda" else WORK_ON_A_PROCESSOR / (2 * footprint.weights)


def allowed_bytes(device: torch.device) -> int:
    """Bytes that a run may plan for on this device, its weights being there already.

    On a processor a run counts on as much of the memory as it has of the cores: others may run on those left.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * SHARE_OF_FREE_MEMORY)
    own_cores = min(1.0, torch.get_num_threads() / (os.cpu_count() or 1))
    own = int(SHARE_OF_A_PROCESSORS_MEMORY * physical_bytes() * own_cores)
    return min(max(own, ON_A_PROCESSOR_AT_LEAST), ON_A_PROCESSOR_AT_MOST)


def physical_bytes() -> int:
    """The memory of this machine beside its GPUs, used or not."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _widest(plan: Sequence[tuple[int, int]]) -> int:
    return max((stop - start for start, stop in plan), default=1)


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a GPU or in torch's allocator for the processor."""
    words = str(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in words


def release_cached(device: torch.device) -> None:
    """Give back what the allocator holds unused."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
