"""Passes that repeat: the steady block and decode step, recorded once and replayed with other tokens (CUDA graphs).

On a GPU, a pass over a small batch waits for Python: a hundred small operations are issued layer by layer. Once every
row is at its budget, each pass does the same to the same memory: it reads tokens, positions and lengths, writes the
chunk behind the slots, attends, selects and overwrites what was evicted. Such a pass is recorded when it occurs for
the second time, and then replayed in one call. Dense rows grow, so that their passes never repeat.

How a pass is recorded is told from outside: `on_gpu`, or a tape of operations in the tests, which refuses what a
graph would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from harness.engine.batch.evict_all_layers import LayerBatch
from harness.engine.batch.feed import CannotRecordError, Feed

if TYPE_CHECKING:
    from harness.engine.batch.batch import Batch

Compute = Callable[[], Tensor]  # a whole pass: its logits
Replay = Callable[[], Tensor]  # the same once more, on the same memory
Record = Callable[[Compute], Replay]  # records a pass without a trace in any tensor, or so that the next replay is free


@dataclass(frozen=True)
class Recording:
    """A pass on tensors of its own for what goes in; everything else lies where it lay when it was recorded."""

    feed: Feed
    seen: Tensor  # (R, 1, 1) int64
    constants: tuple[Tensor, ...]  # that the pass reads and nobody else may hold any more
    calls: tuple[int, ...]  # policy calls of one pass, by row
    replay: Replay

    def again(self, cohort: Batch) -> Tensor:
        """The pass that the cohort has begun. Logits (R, 1 or m, vocabulary)."""
        self.feed.tokens.copy_(cohort.feed.tokens)
        self.feed.positions.copy_(cohort.feed.positions)
        self.seen.copy_(cohort.seen)
        cohort.tally.calls = [before + more for before, more in zip(cohort.tally.calls, self.calls, strict=True)]
        return self.replay().clone()  # the next replay writes over it


@dataclass
class _GraphState:
    """What a cohort has done so far: how its last pass looked, and its recording if that has been made."""

    shape: Hashable = None
    recording: Recording | None = None
    is_refused: bool = False  # whether a pass of this shape could not be recorded


class CudaGraphRunner:
    """The recordings of an engine, at most one for each cohort. ``tell`` hears once why a pass was not recorded."""

    def __init__(self, record: Record, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self.record, self.tell = record, tell
        self.replayed = 0  # passes
        self._courses: WeakKeyDictionary[Batch, _GraphState] = WeakKeyDictionary()
        self._told: set[str] = set()

    def run(self, cohort: Batch, logits_to_keep: int | None, compute: Compute) -> Tensor:
        """The pass that ``cohort`` has begun: replayed, recorded and replayed, or computed."""
        course = self._courses.setdefault(cohort, _GraphState())
        shape = _shape_of(cohort, logits_to_keep)
        if shape is None or shape != course.shape:  # the first of its shape warms up whatever is made at first use
            course.shape, course.recording, course.is_refused = shape, None, False
            return compute()
        if course.recording is None and not course.is_refused:
            course.recording = self._recorded(cohort, compute)
            course.is_refused = course.recording is None
        if course.recording is None:
            return compute()
        self.replayed += 1
        return course.recording.again(cohort)

    def _recorded(self, cohort: Batch, compute: Compute) -> Recording | None:
        """The cohort's pass as a recording, none where that is impossible; the cohort is as it was before."""
        given, calls = cohort.feed, cohort.tally.calls
        feed = replace(given, tokens=given.tokens.clone(), positions=given.positions.clone())
        seen = cohort.seen.clone()
        _prepare(cohort, feed, seen)
        cohort.tally.calls, cohort.hides_lengths = [0] * len(calls), True
        try:
            replay = self.record(compute)
            return Recording(feed, seen, cohort.constants(), tuple(cohort.tally.calls), replay)
        except (CannotRecordError, RuntimeError) as error:
            self._explain(error)
            return None
        finally:
            cohort.tally.calls, cohort.hides_lengths = calls, False
            _prepare(cohort, given, cohort.seen)

    def _explain(self, error: Exception) -> None:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        sentence = f"engine.compile: a step is computed and not replayed ({first_line}); results are the same."
        if sentence not in self._told:
            self._told.add(sentence)
            self.tell(sentence)


def _prepare(cohort: Batch, feed: Feed, seen: Tensor) -> None:
    """Let the pass that has begun read these tensors."""
    cohort.feed, cohort.seen = feed, seen
    cohort.forget_sight()
    cohort.fold = LayerBatch.of(cohort)


def _shape_of(cohort: Batch, logits_to_keep: int | None) -> Hashable:
    """Equal for two passes in a row that do the same to the same memory; None where nothing can repeat."""
    if cohort.fold is None or cohort.appends or list(cohort.targets) != cohort.counts:
        return None  # layers apart, or slots that are still filled
    if any(group.policy.carried or group.policy.hindsight or group.policy.counts_layers for group in cohort.groups):
        return None  # they read tensors that are made anew in each pass
    return cohort.phase, cohort.feed.widths, cohort.arrived, cohort.targets, logits_to_keep


def on_gpu() -> Record:
    """Record with CUDA graphs, which share their working memory: a replay's result is taken before the next begins."""
    pool = torch.cuda.graph_pool_handle()

    def record(compute: Compute) -> Replay:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = compute()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay

    return record
