"""The slow loop: one layer, chunk by chunk, in the orders AAE and EAA of policies.md section 1.2.

`simulate` runs one layer. `simulate_layers` runs several in layer order with one policy object, which is what
K-VEC's counters need: they change only when a layer compresses the prompt, so finishing layer l before layer l
+ 1 is the order of a real forward pass as far as they are concerned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference.attention import attend
from tests.reference.policy import HeadView, LayerView, Policy

Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]
"""q (Hq, m, D), k (H, m, D), v (H, m, D), already rotated unless `rotate` is given."""


@dataclass
class Step:
    """One chunk's result. Lists have one entry per KV head.

    kept: positions that persist, ascending. output (Hq, m, D): the chunk's attention output. state: per-slot
    state by name, then by position. seen: positions visible to the chunk's last row. evicted: positions dropped
    during this chunk. scores: scores by position at the last selection, None where nothing had to be chosen.
    margin: how far that choice was from a tie. peak: the largest number of slots any row of the chunk could
    attend to.
    """

    kept: list[list[int]]
    output: np.ndarray
    state: list[dict[str, dict[int, Any]]]
    seen: list[list[int]]
    evicted: list[list[int]]
    scores: list[dict[int, float] | None]
    margin: list[float]
    peak: int


def simulate(
    policy: Policy,
    chunks: Sequence[Chunk],
    budget: int | None,
    *,
    prompt_chunks: int,
    scaling: float | None = None,
    layer: int = 0,
    n_layers: int = 1,
    rotate: Callable[[np.ndarray, int], np.ndarray] | None = None,
) -> list[Step]:
    """Run one layer. The first `prompt_chunks` chunks are the prompt, the rest are decode steps with m = 1.

    budget: N slots per KV head, None where the policy has its own size (FastGen, BUZZ with a threshold).
    scaling: factor on q . k, 1/sqrt(D) if None. layer, n_layers: place in the model, for layer-dependent
    budgets. rotate: vector (D,), index -> vector; given for in-cache RoPE positions (section 1.5), with q and k
    unrotated.
    """
    policy.begin_sequence(n_layers)
    return _Layer(policy, chunks, budget, prompt_chunks, scaling, layer, n_layers, rotate).run()


def simulate_layers(
    policy: Policy,
    layers: Sequence[Sequence[Chunk]],
    budget: int | None,
    *,
    prompt_chunks: int,
    scaling: float | None = None,
    rotate: Callable[[np.ndarray, int], np.ndarray] | None = None,
) -> list[list[Step]]:
    """Run several layers, lowest first, with one policy object; layers[l] are the chunks of layer l."""
    policy.begin_sequence(len(layers))
    return [
        _Layer(policy, chunks, budget, prompt_chunks, scaling, index, len(layers), rotate).run()
        for index, chunks in enumerate(layers)
    ]


class _Layer:
    def __init__(
        self,
        policy: Policy,
        chunks: Sequence[Chunk],
        budget: int | None,
        prompt_chunks: int,
        scaling: float | None,
        index: int,
        n_layers: int,
        rotate: Callable[[np.ndarray, int], np.ndarray] | None,
    ) -> None:
        if rotate is not None and policy.order == "EAA":
            raise ValueError("in-cache positions are defined here for order AAE only")
        q, k, _ = chunks[0]
        self.policy, self.chunks, self.budget, self.rotate = policy, chunks, budget, rotate
        self.prompt_chunks, self.index, self.n_layers = prompt_chunks, index, n_layers
        self.H, self.G = k.shape[0], q.shape[0] // k.shape[0]
        self.scale = 1.0 / math.sqrt(q.shape[2]) if scaling is None else scaling
        self.total = sum(chunk[0].shape[1] for chunk in chunks[:prompt_chunks])
        self.k: list[dict[int, np.ndarray]] = [{} for _ in range(self.H)]
        self.v: list[dict[int, np.ndarray]] = [{} for _ in range(self.H)]
        self.evicted: list[list[int]] = []
        self.next_pos = 0
        self.peak = 0

    def run(self) -> list[Step]:
        self.policy.begin_layer(self.index, self.H, self.G, self.budget)
        steps = []
        for c, chunk in enumerate(self.chunks):
            prompt = c < self.prompt_chunks
            last = c == self.prompt_chunks - 1
            q, k, v = (np.asarray(x, dtype=np.float64) for x in chunk)
            m = q.shape[1]
            if not prompt and m != 1:
                raise ValueError("a decode step has one token")
            self.policy.begin_step(self.H)
            self.evicted = [[] for _ in range(self.H)]
            self.peak = 0
            pieces = [(i, i + 1) for i in range(m)] if prompt and self.policy.sequential_prompt else [(0, m)]
            outputs = []
            for start, stop in pieces:
                done = last and stop == m
                rows = (q[:, start:stop], k[:, start:stop], v[:, start:stop])
                output, seen = self._forward(*rows, prompt, done)
                outputs.append(output)
            steps.append(
                Step(
                    kept=[sorted(slots) for slots in self.k],
                    output=np.concatenate(outputs, axis=1),
                    state=[self.policy.state(g) for g in range(self.H)],
                    seen=seen,
                    evicted=[sorted(gone) for gone in self.evicted],
                    scores=list(self.policy.scores),
                    margin=list(self.policy.margins),
                    peak=self.peak,
                )
            )
        return steps

    def _forward(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, prompt: bool, prompt_done: bool
    ) -> tuple[np.ndarray, list[list[int]]]:
        """Append, attend and evict (or evict, append and attend) for rows q (Hq, m, D), k and v (H, m, D)."""
        policy, m = self.policy, q.shape[1]
        q_pos = list(range(self.next_pos, self.next_pos + m))
        evict_first = policy.order == "EAA" and m == 1 and (policy.sequential_prompt or not prompt)
        verdicts = ["keep"] * self.H
        if evict_first:
            before = self._view(q, k, q_pos, prompt, prompt_done, self.next_pos)
            if prompt or policy.decode_evict != "never":
                self._drop(policy.make_room(before, self.budget))
            verdicts = [policy.admits(before, g) for g in range(self.H)]
        for g in range(self.H):
            if verdicts[g] != "skip":
                for i, p in enumerate(q_pos):
                    self.k[g][p], self.v[g][p] = k[g, i], v[g, i]
        self.next_pos += m

        view = self._view(q, k, q_pos, prompt, prompt_done, self.next_pos)
        outputs = []
        for head in view.heads:
            scale = self.scale * policy.logit_factor(len(head.pos))
            head.probs, output = attend(head.q, q_pos, head.k, head.v, head.pos, scale)
            outputs.append(output)
        seen = [list(head.pos) for head in view.heads]
        self.peak = max(self.peak, max(len(pos) for pos in seen))

        policy.update(view)
        if not evict_first and policy.due(view):
            self._drop(policy.select(view, self.budget))
        # A token that was only looked at leaves again.
        self._drop([[p for p in self.k[g] if verdicts[g] != "see" or p not in q_pos] for g in range(self.H)])
        policy.after_eviction(view, [sorted(slots) for slots in self.k])
        return np.concatenate(outputs), seen

    def _view(
        self, q: np.ndarray, k: np.ndarray, q_pos: list[int], prompt: bool, prompt_done: bool, next_pos: int
    ) -> LayerView:
        view = LayerView(
            index=self.index,
            n_layers=self.n_layers,
            prompt=prompt,
            prompt_done=prompt_done,
            total=self.total,
            next_pos=next_pos,
            q_pos=q_pos,
            k_new=k,
            scale=self.scale,
        )
        for g in range(self.H):
            pos = sorted(self.k[g])
            queries = q[g * self.G : (g + 1) * self.G]
            keys = [self.k[g][p] for p in pos]
            if self.rotate is not None:
                # In-cache positions: slot j sits at j, the chunk's rows at n - m ... n - 1 (section 1.5).
                shift = len(pos) - q.shape[1]
                keys = [self.rotate(key, j) for j, key in enumerate(keys)]
                queries = np.array([[self.rotate(row, shift + i) for i, row in enumerate(rows)] for rows in queries])
            width = q.shape[2]
            view.heads.append(
                HeadView(
                    g=g,
                    pos=pos,
                    k=np.array(keys).reshape(len(pos), width),
                    v=np.array([self.v[g][p] for p in pos]).reshape(len(pos), -1 if pos else width),
                    q=queries,
                    probs=None,
                    layer=view,
                )
            )
        return view

    def _drop(self, kept: list[list[int]]) -> None:
        for g in range(self.H):
            stay = set(kept[g])
            if len(stay) != len(kept[g]) or not stay <= set(self.k[g]):
                raise AssertionError("a policy must keep distinct slots that exist")
            gone = set(self.k[g]) - stay
            for p in gone:
                del self.k[g][p], self.v[g][p]
            self.policy.forget(g, gone)
            self.evicted[g].extend(gone)
