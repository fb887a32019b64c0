"""Batches made ahead by a worker process, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import numpy as np
import tokenizers

from scripts.testbed.curriculum import Curriculum
from scripts.testbed.mixture import Mixture
from tasks.mini.material import material

AHEAD = 6  # batches


def batches(plan: Curriculum, tokenizer: Path, seed: int, start: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batch of each step from ``start`` on: ids and weights."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as worker:
        steps = iter(range(start, plan.steps))
        waiting = deque(worker.submit(_batch, plan, tokenizer, seed, step) for _, step in zip(range(AHEAD), steps))  # noqa: B905
        while waiting:
            yield waiting.popleft().result()
            if (step := next(steps, None)) is not None:
                waiting.append(worker.submit(_batch, plan, tokenizer, seed, step))


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""

    def follow() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    Thread(target=follow, daemon=True).start()


def _batch(plan: Curriculum, tokenizer: Path, seed: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    index, within = plan.at(step)
    stage = plan.stages[index]
    mixture = _mixture(tokenizer, tuple(stage.mixture.items()), stage.length)
    return mixture.batch(f"{seed}/{index}/{within}", stage.sequences)


@cache
def _mixture(tokenizer: Path, shares: tuple[tuple[str, float], ...], length: int) -> Mixture:
    return Mixture(tokenizers.Tokenizer.from_file(str(tokenizer)), material("train"), dict(shares), length)
