"""Inputs shared by the tests of the reference: random chunks, and one small configuration of every policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tests.reference import presets
from tests.reference.engine import Chunk, Step
from tests.reference.headkv import uniform_profile
from tests.reference.policy import Policy


def rng(seed: int) -> np.random.Generator:
    """Reproducible numbers."""
    return np.random.default_rng(seed)


def kept(steps: Sequence[Step]) -> list[list[list[int]]]:
    """Per chunk and KV head the kept positions."""
    return [step.kept for step in steps]


def random_chunks(
    rng: np.random.Generator,
    sizes: Sequence[int],
    H: int = 2,  # noqa: N803
    G: int = 2,  # noqa: N803
    D: int = 4,  # noqa: N803
) -> list[Chunk]:
    """One (q (H * G, m, D), k (H, m, D), v (H, m, D)) per size m."""
    return [
        (
            rng.standard_normal((H * G, m, D)),
            rng.standard_normal((H, m, D)),
            rng.standard_normal((H, m, D)),
        )
        for m in sizes
    ]


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """The same tokens as one chunk."""
    q, k, v = zip(*chunks, strict=True)
    return np.concatenate(q, axis=1), np.concatenate(k, axis=1), np.concatenate(v, axis=1)


def split(chunk: Chunk, sizes: Sequence[int]) -> list[Chunk]:
    """The same tokens as several chunks."""
    edges = np.cumsum([0, *sizes])
    return [tuple(x[:, a:b] for x in chunk) for a, b in pairwise(edges)]  # type: ignore[misc]


def scripted(rows: Sequence[np.ndarray], values: np.ndarray | None = None, H: int = 1) -> list[Chunk]:  # noqa: N803
    """Chunks whose attention is given, to be run with scaling = 1.

    rows: per chunk an array (Hq, m, n), one column per token read so far, chunk included; every row sums to 1.
    Keys are one-hot by position and queries are log-probabilities, so that the softmax over whatever is still
    cached is the given row renormalised. values (tokens, D) defaults to one-hot: the output then is the
    attention itself.
    """
    total = rows[-1].shape[2]
    one_hot = np.eye(total)
    chunks: list[Chunk] = []
    for block in rows:
        Hq, m, n = block.shape
        q = np.full((Hq, m, total), -1e3)  # exp(-1000) is 0 in float64
        for index, p in np.ndenumerate(block):
            if p > 0:
                q[index] = np.log(p)
        k = np.repeat(one_hot[None, n - m : n], H, axis=0)
        v = k if values is None else np.repeat(values[None, n - m : n], H, axis=0)
        chunks.append((q, k, v))
    return chunks


@dataclass
class Case:
    """A policy at toy size.

    modes: 'block' and/or 'once'. exact_budget: never persists more than N slots. reads_scores: a score can be
    NaN.
    """

    name: str
    preset: str
    parameters: dict[str, Any] = field(default_factory=dict)
    modes: tuple[str, ...] = ("block",)
    exact_budget: bool = True
    reads_scores: bool = True

    def policy(self, **overrides: Any) -> Policy:
        return presets.make(self.preset, **{**self.parameters, **overrides})


SMALL = {"window": 3, "kernel": 3}
BUZZ = {"sink": 2, "window": 4, "stride": 3, "threshold": 9}
TOKENS = [int(t) for t in np.random.default_rng(5).integers(0, 12, 400)]
FASTGEN = {"tokens": TOKENS, "special_ids": {0}, "punct_ids": {1, 2}, "recovery": 0.6, "max_len": 60}

CASES = [
    Case("window", "window", modes=("block", "once"), reads_scores=False),
    Case("sink", "sink", modes=("block", "once"), reads_scores=False),
    Case("h2o", "h2o/keydiff", modes=("block", "once")),
    Case("h2o-original", "h2o/original", modes=("block", "once")),
    Case("h2o-mean", "h2o/keydiff", {"accumulate": "mean"}, modes=("block", "once")),
    Case("h2o-coldcompress", "h2o/coldcompress", {"recent": 3, "sink": 2}, modes=("once",)),
    Case("tova", "tova/keydiff", modes=("block", "once")),
    Case("tova-layer", "tova/original", modes=("once",)),
    Case("snapkv", "snapkv/keydiff", SMALL, modes=("block",)),
    Case("snapkv-carry", "snapkv/keydiff", {**SMALL, "window_source": "carry"}, modes=("block",)),
    Case("snapkv-once", "snapkv/kvec", SMALL, modes=("once",), exact_budget=False),
    Case("pyramidkv", "pyramidkv/kvec", SMALL, modes=("once",), exact_budget=False),
    Case("ada-snapkv", "ada-snapkv/kvec", SMALL, modes=("once",), exact_budget=False),
    Case("ada-pyramid", "ada-pyramid/kvec", SMALL, modes=("once",), exact_budget=False),
    Case(
        "headkv",
        "headkv/original",
        {**SMALL, "profile": uniform_profile(1, 4)},
        modes=("once",),
        exact_budget=False,
    ),
    Case("scissorhands", "scissorhands/hashevict", {"recent": 3, "sink": 2}, modes=("once",)),
    Case("fastgen", "fastgen/hashevict", FASTGEN, modes=("once",), exact_budget=False),
    Case("l2", "l2/original", {"skip_layers": (), "prefill_evict": "after_each_block"}, modes=("block", "once")),
    Case("l2-hashevict", "l2/hashevict", {"recent": 3, "sink": 2}, modes=("once",)),
    Case("hashevict", "hashevict/paper", {"recent": 3, "sink": 2, "bits": 8}, modes=("block", "once")),
    Case("hashevict-code", "hashevict/released-code", {"recent": 3, "sink": 2, "bits": 8}, modes=("once",)),
    Case("keydiff", "keydiff/default", modes=("block", "once")),
    Case("keydiff-recent", "keydiff/default", {"recent_frac": 0.2}, modes=("block", "once")),
    Case("caote-h2o", "caote+h2o/keydiff", modes=("block", "once")),
    Case("caote-tova", "caote+tova/keydiff", modes=("block", "once")),
    Case("caote-snapkv", "caote+snapkv/keydiff", SMALL, modes=("block",)),
    Case("fastcaote-h2o", "fastcaote+h2o/keydiff", modes=("block", "once")),
    Case("buzz", "buzz/default", BUZZ, modes=("once",), exact_budget=False),
    Case("buzz-stream", "buzz/default", {**BUZZ, "prefill": "stream"}, modes=("block",), exact_budget=False),
    Case("kvec", "kvec/default", {"O": 3, "O_prime": 6, "kernel": 3}, modes=("once",), exact_budget=False),
]
BY_NAME = {case.name: case for case in CASES}


def with_mode(mode: str) -> list[Case]:
    return [case for case in CASES if mode in case.modes]


def prompt_sizes(case: Case, mode: str) -> list[int]:
    """24 prompt tokens, in blocks with a short last one (A-20) or in one shot."""
    return [24] if mode == "once" else [9, 9, 6]
