"""What public implementations keep of one prompt: each convention in our own words, slowly and in float64.

From what the repository's code does to queries and keys; sources are named by owner/name. Where scores are equal, the
public code leaves the choice to `topk`; here the newer token stays, as everywhere in this repository (policies.md 1.3).
Such ties are common with max pooling. kvpress gives its window the largest score of the prefix, so that the best token
of the prefix ties with it: here the window stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

Kept = list[list[int]]


@dataclass(frozen=True)
class Layer:
    """What one layer of a prompt offers: q (H, G, n, D), k and v (H, n, D), its number, and the number of layers."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    number: int
    layers: int

    @property
    def tokens(self) -> int:
        return self.k.shape[1]

    def attention(self, rows: int) -> np.ndarray:
        """(H, G, rows, n): causal softmax of the last queries over all keys."""
        n = self.tokens
        logits = np.einsum("hgid,hjd->hgij", self.q[:, :, n - rows :], self.k) / np.sqrt(self.k.shape[2])
        logits[..., np.arange(n) > np.arange(n - rows, n)[:, None]] = -np.inf
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def before_window(self, window: int) -> np.ndarray:
        """(H, G, n - window): mean attention of the window's queries to each token before the window."""
        return self.attention(window).mean(2)[..., : self.tokens - window]


def pooled(scores: np.ndarray, kernel: int, pool: str) -> np.ndarray:
    """Along the last axis, stride 1: "avg" counts what lies outside as zeros, "avg_nopad" and "max" leave it out."""
    half, n = kernel // 2, scores.shape[-1]
    near = [scores[..., max(0, j - half) : j + half + 1] for j in range(n)]
    how = {"avg": lambda x: x.sum(-1) / kernel, "avg_nopad": lambda x: x.mean(-1), "max": lambda x: x.max(-1)}[pool]
    return np.stack([how(each) for each in near], -1)


def best(scores: np.ndarray, count: int) -> list[int]:
    """The places of the ``count`` largest numbers; of equal ones the later."""
    ranking = sorted(range(len(scores)), key=lambda place: (scores[place], place), reverse=True)
    return sorted(ranking[:count])


def best_and_window(scores: np.ndarray, counts: list[int], window: int) -> Kept:
    """``counts[g]`` tokens of head g's prefix, (H, n - window), and the window."""
    prefix = scores.shape[-1]
    recent = list(range(prefix, prefix + window))
    return [best(row, count) + recent for row, count in zip(scores, counts, strict=True)]


def snap(layer: Layer, window: int, kernel: int, pool: str) -> np.ndarray:
    """(H, n - window): group mean, then pooling."""
    return pooled(layer.before_window(window).mean(1), kernel, pool)


def everything(layer: Layer) -> Kept:
    return [list(range(layer.tokens))] * len(layer.k)


# NVIDIA/kvpress: all presses compress once after the prompt; a ratio becomes int(tokens x (1 - ratio)) slots.


def kvpress_scores(layer: Layer) -> np.ndarray:
    """Window 64, average pooling 5 of each query head with zeros outside, then the mean over the group."""
    return pooled(layer.before_window(64), 5, "avg").mean(1)


def kvpress_snapkv(layer: Layer, budget: int) -> Kept:
    return best_and_window(kvpress_scores(layer), [budget - 64] * len(layer.k), 64)


def kvpress_tova(layer: Layer, budget: int) -> Kept:
    """The last query's attention, mean over all query heads; the last token always stays."""
    scores = layer.attention(1)[:, :, 0, :-1].mean((0, 1))
    return [[*best(scores, budget - 1), layer.tokens - 1]] * len(layer.k)


def kvpress_keydiff(layer: Layer, budget: int) -> Kept:
    """The keys least similar to the mean of the normalised keys."""
    units = layer.k / np.linalg.norm(layer.k, axis=-1, keepdims=True)
    return [best(-(unit @ unit.mean(0)), budget) for unit in units]


def kvpress_knorm(layer: Layer, budget: int) -> Kept:
    return [best(-np.linalg.norm(keys, axis=-1), budget) for keys in layer.k]


def kvpress_lagkv(layer: Layer, budget: int) -> Kept:
    """4 sinks; partitions of 128, ranked; the last whole one and what follows it first. Below two, the newest."""
    n, lag = layer.tokens, 128
    whole = (n - 4) // lag
    scores = np.ones((len(layer.k), n))
    for number in range(whole - 1):
        own, following = (slice(4 + lag * place, 4 + lag * (place + 1)) for place in (number, number + 1))
        sums = 0
        for states in (layer.k.astype("f8"), layer.v.astype("f8")):
            low, high = states[:, following].min(1, keepdims=True), states[:, following].max(1, keepdims=True)
            spread = np.exp(((states[:, own] - low) / (high - low)).std(-1, ddof=1))
            sums += spread / spread.sum(-1, keepdims=True)
        scores[:, own] = sums.argsort(-1).argsort(-1) / lag
    scores[:, :4] = np.inf
    return [best(row, budget) for row in scores]


def kvpress_cur(layer: Layer, budget: int) -> Kept:
    """4 sinks; key norm x value norm, both squared, as shares of windows of 16."""
    scores = 1
    for states in (layer.k.astype("f8"), layer.v.astype("f8")):
        squares = (states**2).sum(-1)
        windows = [squares[:, start : start + 16] for start in range(0, layer.tokens, 16)]
        scores = scores * np.concatenate([own / own.sum(-1, keepdims=True) for own in windows], -1)
    scores[:, :4] = np.inf
    return [best(row, budget) for row in scores]


def kvpress_streaming(layer: Layer, budget: int) -> Kept:
    n = layer.tokens
    return [[*range(4), *range(n - budget + 4, n)]] * len(layer.k)


def kvpress_line(tokens: int, budget: int, layers: int) -> list[int]:
    """The whole layer's slots on a line from 2N - N/20 to N/20, whose start the prompt without its window limits (the
    end then rises); N in all layers where the end is below the window. Rounded half to even.
    """
    end = Fraction(budget, 20)
    start = 2 * budget - end
    if start >= tokens - 64:
        start = Fraction(tokens - 64)
        end = 2 * budget - start
    if not tokens >= start >= end >= 64:
        return [budget] * layers
    return [round(start + (end - start) * Fraction(place, layers - 1)) for place in range(layers)]


def kvpress_pyramid(layer: Layer, budget: int) -> Kept:
    return kvpress_snapkv(layer, kvpress_line(layer.tokens, budget, layer.layers)[layer.number])


def kvpress_ada(layer: Layer, budget: int) -> Kept:
    """Every head's best int(0.2 N), window first, are safe; the layer's best scores take the rest of H x N."""
    scores = np.pad(kvpress_scores(layer), ((0, 0), (0, 64)), constant_values=np.inf)
    safe = {(g, j) for g, row in enumerate(scores) for j in best(row, int(budget * 0.2))}
    places = [(g, j) for g in range(len(scores)) for j in range(layer.tokens)]
    ranking = sorted(places, key=lambda at: (at in safe, scores[at], at[1]), reverse=True)
    kept = set(ranking[: budget * len(scores)])
    return [[j for j in range(layer.tokens) if (g, j) in kept] for g in range(len(scores))]


# FasterDecoding/SnapKV, FFY0/AdaKV (group mean before pooling), Zefan-Cai/KVCache-Factory (the same, per KV head).


def snapkv_library(layer: Layer, budget: int) -> Kept:
    """Library defaults of FasterDecoding/SnapKV: window 32, average pooling 5."""
    return best_and_window(snap(layer, 32, 5, "avg"), [budget - 32] * len(layer.k), 32)


def adakv_snapkv(layer: Layer, budget: int) -> Kept:
    """The LongBench configuration of FasterDecoding/SnapKV and FFY0/AdaKV: window 32, max pooling 7."""
    return best_and_window(snap(layer, 32, 7, "max"), [budget - 32] * len(layer.k), 32)


def factory_snapkv(layer: Layer, budget: int) -> Kept:
    """The runner sets window 8 and max pooling 7."""
    return best_and_window(snap(layer, 8, 7, "max"), [budget - 8] * len(layer.k), 8)


def floored_line(layer: Layer, average: int, prefix: int) -> int:
    """The layer's prefix slots: from 2A - A//20 to A//20, the first at most the prefix, by a step rounded down."""
    end = average // 20
    start = 2 * average - end
    if start >= prefix:
        start, end = prefix, 2 * average - prefix
    return start - layer.number * ((start - end) // (layer.layers - 1))


def adakv_pyramid(layer: Layer, budget: int) -> Kept:
    own = floored_line(layer, budget - 32, layer.tokens - 32)
    return best_and_window(snap(layer, 32, 7, "max"), [own] * len(layer.k), 32)


def factory_pyramid(layer: Layer, budget: int) -> Kept:
    """No pyramid for prompts shorter than twice the average prefix."""
    average = budget - 8
    own = average if layer.tokens < 2 * average else floored_line(layer, average, layer.tokens - 8)
    return best_and_window(snap(layer, 8, 7, "max"), [own] * len(layer.k), 8)


def ada(layer: Layer, average: int, window: int, weighed: bool = False) -> Kept:
    """Slots that the head wins in the layer's best H x average scores, times 0.8, plus int(0.2 average), rounded."""
    scores = snap(layer, window, 7, "max")
    if average > scores.shape[1]:
        return everything(layer)
    compared = scores
    if weighed:
        mass = np.sort(scores, -1)[:, ::-1]
        compared = scores * (mass[:, :average].sum(-1) / mass.sum(-1))[:, None]
    places = [(g, j) for g in range(len(scores)) for j in range(scores.shape[1])]
    ranking = sorted(places, key=lambda at: (compared[at], at[1], -at[0]), reverse=True)
    won = [g for g, _ in ranking[: average * len(scores)]]
    counts = [round(won.count(g) * 0.8 + int(average * 0.2)) for g in range(len(scores))]
    return best_and_window(scores, counts, window)


def adakv_ada(layer: Layer, budget: int) -> Kept:
    return ada(layer, budget - 32, 32)


def adakv_ada_pyramid(layer: Layer, budget: int) -> Kept:
    return ada(layer, floored_line(layer, budget - 32, layer.tokens - 32), 32)


def factory_ada(layer: Layer, budget: int) -> Kept:
    return ada(layer, budget - 8, 8, weighed=True)


def factory_h2o(layer: Layer, budget: int) -> Kept:
    received = layer.attention(layer.tokens).mean(1).sum(1)[:, :-8]
    return best_and_window(received, [budget - 8] * len(layer.k), 8)


# schwartz-lab-NLP/TOVA, mit-han-lab/streaming-llm, alessiodevoto/l2compress, AnswerDotAI/cold-compress.


def tova_original(layer: Layer, budget: int) -> Kept:
    """The last query's attention, mean over all query heads; the last token competes."""
    return [best(layer.attention(1)[:, :, 0].mean((0, 1)), budget)] * len(layer.k)


def l2compress(layer: Layer, budget: int) -> Kept:
    """The first two layers stay full."""
    return everything(layer) if layer.number < 2 else kvpress_knorm(layer, budget)


def cold_l2(layer: Layer, budget: int) -> Kept:
    """The first 4 and the last 10 stay; the others by low norm."""
    scores = -np.linalg.norm(layer.k, axis=-1)
    scores[:, :4] = scores[:, -10:] = np.inf
    return [best(row, budget) for row in scores]


def cold_heavy_hitters(layer: Layer, budget: int) -> Kept:
    """The first 4 and the last 16 stay; the others by the last 16 queries' mean, pooled by 5 over all tokens."""
    scores = pooled(layer.attention(16).mean((1, 2)), 5, "avg_nopad")
    scores[:, :4] = scores[:, -16:] = np.inf
    return [best(row, budget) for row in scores]


@dataclass(frozen=True)
class Public:
    """A public implementation and the preset that reproduces it, from the smallest budget that both can hold."""

    where: str
    preset: str
    kept: Callable[[Layer, int], Kept]
    smallest: int


ALL = [
    Public("NVIDIA/kvpress SnapKVPress", "snapkv/kvpress", kvpress_snapkv, 64),
    Public("NVIDIA/kvpress TOVAPress", "tova/kvpress", kvpress_tova, 1),
    Public("NVIDIA/kvpress KeyDiffPress", "keydiff/kvpress", kvpress_keydiff, 1),
    Public("NVIDIA/kvpress KnormPress", "l2/kvpress", kvpress_knorm, 1),
    Public("NVIDIA/kvpress LagKVPress", "lagkv/kvpress", kvpress_lagkv, 5),
    Public("NVIDIA/kvpress CURPress", "cur/kvpress", kvpress_cur, 5),
    Public("NVIDIA/kvpress StreamingLLMPress", "sink/kvpress", kvpress_streaming, 5),
    Public("NVIDIA/kvpress PyramidKVPress", "pyramidkv/kvpress", kvpress_pyramid, 64),
    Public("NVIDIA/kvpress AdaKVPress(SnapKVPress)", "ada_snapkv/kvpress", kvpress_ada, 64),
    Public("FasterDecoding/SnapKV library", "snapkv/original", snapkv_library, 32),
    Public("FFY0/AdaKV SnapKV", "snapkv/adakv", adakv_snapkv, 32),
    Public("FFY0/AdaKV PyramidKV", "pyramidkv/public_code", adakv_pyramid, 33),
    Public("FFY0/AdaKV Ada-SnapKV", "ada_snapkv/public_code", adakv_ada, 33),
    Public("FFY0/AdaKV Ada-Pyramid", "ada_pyramidkv/public_code", adakv_ada_pyramid, 33),
    Public("Zefan-Cai/KVCache-Factory SnapKV", "snapkv/kvcache_factory", factory_snapkv, 8),
    Public("Zefan-Cai/KVCache-Factory PyramidKV", "pyramidkv/kvcache_factory", factory_pyramid, 9),
    Public("Zefan-Cai/KVCache-Factory AdaKV", "ada_snapkv/kvcache_factory", factory_ada, 9),
    Public("Zefan-Cai/KVCache-Factory H2O", "h2o/kvcache_factory", factory_h2o, 8),
    Public("schwartz-lab-NLP/TOVA", "tova/original", tova_original, 1),
    Public("mit-han-lab/streaming-llm", "sink", kvpress_streaming, 5),
    Public("alessiodevoto/l2compress", "l2/original", l2compress, 1),
    Public("AnswerDotAI/cold-compress l2", "l2/hashevict", cold_l2, 14),
    Public("AnswerDotAI/cold-compress heavy_hitter", "h2o/coldcompress", cold_heavy_hitters, 20),
    Public("AnswerDotAI/cold-compress scissor", "scissorhands", cold_heavy_hitters, 20),
]
PRESETS = {public.preset: public for public in ALL}
