"""CUDA graphs: steady blocks and decode steps are recorded once and replayed with other tokens.

On a GPU, a pass over few rows waits for Python: a hundred small operations are issued layer by layer. Once every row is
at its budget, each pass does the same to the same memory: it reads tokens, positions and lengths, writes the chunk
behind the slots, attends, selects and overwrites what was evicted. Such a pass is recorded when it occurs for the
second time, and from then on replayed in one call. Dense rows grow, so their passes are never replayed.

`CudaGraphRunner` is given the function that records: `on_gpu`, or in the tests a tape of operations that refuses what a
CUDA graph would refuse.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from harness.engine.batch.feed import CannotRecordError, Feed
from harness.engine.batch.layer_batch import LayerBatch

if TYPE_CHECKING:
    from harness.engine.batch.batch import Batch

Compute = Callable[[], Tensor]  # a whole pass: its logits
Replay = Callable[[], Tensor]  # the same pass once more, on the same memory
Record = Callable[[Compute], Replay]  # records a pass without changing any tensor, or so that the first replay is free


@dataclass(frozen=True)
class Recording:
    """A recorded pass. Its inputs are tensors of its own; everything else lies where it lay when it was recorded."""

    feed: Feed
    seen: Tensor  # (R, 1, 1) int64
    constants: tuple[Tensor, ...]  # tensors that the pass reads, held here so that their memory is not reused
    calls: tuple[int, ...]  # policy calls of one pass, by row
    replay: Replay

    def run(self, batch: Batch) -> Tensor:
        """Replay the pass that the batch has begun. Logits (R, 1 or m, vocabulary)."""
        self.feed.tokens.copy_(batch.feed.tokens)
        self.feed.positions.copy_(batch.feed.positions)
        self.seen.copy_(batch.seen)
        statistics = batch.statistics
        statistics.calls = [before + more for before, more in zip(statistics.calls, self.calls, strict=True)]
        return self.replay().clone()  # the next replay writes over it


@dataclass
class _GraphState:
    """A batch's last pass: its shape, and its recording if there is one."""

    shape: Hashable = None
    recording: Recording | None = None
    is_refused: bool = False  # whether a pass of this shape could not be recorded


class CudaGraphRunner:
    """The recordings of an engine, at most one per batch. ``tell`` is called once with each reason not to record."""

    def __init__(self, record: Record, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self.record, self.tell = record, tell
        self.replayed = 0  # passes
        self._states: WeakKeyDictionary[Batch, _GraphState] = WeakKeyDictionary()
        self._told: set[str] = set()

    def run(self, batch: Batch, logits_to_keep: int | None, compute: Compute) -> Tensor:
        """The pass that ``batch`` has begun: replayed, recorded and replayed, or computed."""
        state = self._states.setdefault(batch, _GraphState())
        shape = _shape_of(batch, logits_to_keep)
        if shape is None or shape != state.shape:  # the first pass of a shape allocates what is made at first use
            state.shape, state.recording, state.is_refused = shape, None, False
            return compute()
        if state.recording is None and not state.is_refused:
            state.recording = self._recorded(batch, compute)
            state.is_refused = state.recording is None
        if state.recording is None:
            return compute()
        self.replayed += 1
        return state.recording.run(batch)

    def _recorded(self, batch: Batch, compute: Compute) -> Recording | None:
        """The batch's pass as a recording, None where that is impossible. The batch is left as it was before."""
        original, calls = batch.feed, batch.statistics.calls
        feed = replace(original, tokens=original.tokens.clone(), positions=original.positions.clone())
        seen = batch.seen.clone()
        _use_inputs(batch, feed, seen)
        batch.statistics.calls, batch.hides_lengths = [0] * len(calls), True
        try:
            replay = self.record(compute)
            return Recording(feed, seen, batch.constants(), tuple(batch.statistics.calls), replay)
        except (CannotRecordError, RuntimeError) as error:
            self._explain(error)
            return None
        finally:
            batch.statistics.calls, batch.hides_lengths = calls, False
            _use_inputs(batch, original, batch.seen)

    def _explain(self, error: Exception) -> None:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        sentence = f"engine.compile: a step is computed and not replayed ({first_line}); results are the same."
        if sentence not in self._told:
            self._told.add(sentence)
            self.tell(sentence)


def _use_inputs(batch: Batch, feed: Feed, seen: Tensor) -> None:
    """Let the pass that the batch has begun read these tensors."""
    batch.feed, batch.seen = feed, seen
    batch.forget_mask()
    batch.layer_batch = LayerBatch.of(batch)


def _shape_of(batch: Batch, logits_to_keep: int | None) -> Hashable:
    """Equal for two consecutive passes that do the same to the same memory; None where a pass cannot be replayed."""
    if batch.layer_batch is None or batch.appends or list(batch.targets) != batch.counts:
        return None  # layers evict one by one, or slots are still being filled
    if any(group.policy.hindsight or group.policy.counts_layers for group in batch.groups):
        return None  # their policies read tensors that are made anew in each pass
    return batch.phase, batch.feed.widths, batch.arrived, batch.targets, logits_to_keep


class _GpuRecorder:
    """Records with CUDA graphs, which share their working memory: a replay's result is taken before the next begins.

    torch gives a pool of memory up with its last graph and refuses it from then on, so one small graph is kept beside
    the pool. A recording that fails can leave its pool unusable: the next one gets another.
    """

    def __init__(self) -> None:
        self._new_pool()

    def __call__(self, compute: Compute) -> Replay:
        graph = torch.cuda.CUDAGraph()
        try:
            with _no_garbage_collection(), torch.cuda.graph(graph, pool=self._pool):
                logits = compute()
        except Exception:
            self._new_pool()
            raise

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay

    def _new_pool(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._keeper = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._keeper, pool=self._pool):
            torch.zeros(1, device="cuda")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Finished batches refer to themselves: collecting one frees its graphs, which breaks a recording under way."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def on_gpu() -> Record:
    """Record with CUDA graphs on the current GPU."""
    return _GpuRecorder()
