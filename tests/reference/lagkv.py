"""LagKV: spread over channels, scaled by the next partition (policies.md section 3.19; LagKV section 2)."""

import math
import statistics

import numpy as np

from tests.reference.policy import HeadView, Policy, first_positions


def softmax(numbers: list[float]) -> list[float]:
    top = max(numbers)
    weights = [math.exp(x - top) for x in numbers]
    return [weight / sum(weights) for weight in weights]


def spreads(partition: np.ndarray, following: np.ndarray) -> list[float]:
    """Both (lag, D) -> lag numbers: standard deviation of a sample over channels; a constant channel counts 0."""
    out = []
    for token in partition:
        scaled = []
        for channel, number in enumerate(token):
            low, high = following[:, channel].min(), following[:, channel].max()
            scaled.append(0.0 if high == low else float((number - low) / (high - low)))
        out.append(statistics.stdev(scaled))
    return out


def scores(keys: np.ndarray, values: np.ndarray, lag: int, compare: str) -> list[float]:
    """keys and values (n, D) of the slots after the sinks, in the order of the text."""
    n = len(keys)
    out = [1.0] * n
    for start in range(0, n - 2 * lag + 1, lag):
        own, following = slice(start, start + lag), slice(start + lag, start + 2 * lag)
        of_keys, of_values = (softmax(spreads(x[own], x[following])) for x in (keys, values))
        both = [(a + b) / 2 for a, b in zip(of_keys, of_values, strict=True)]
        if compare == "within":
            both = [sum((x, i) < (y, j) for i, x in enumerate(both)) / lag for j, y in enumerate(both)]
        out[own] = both
    return out


class LagKV(Policy):
    """Partitions are made of the slots present at every eviction; sinks are protected and in no partition."""

    def __init__(self, lag: int = 128, sink: int = 4, compare: str = "within", **common: str) -> None:
        super().__init__(**common)
        self.lag, self.sink, self.compare = lag, sink, compare

    def score(self, head: HeadView) -> np.ndarray:
        first = len(self.sinks(head))
        return np.array([1.0] * first + scores(head.k[first:], head.v[first:], self.lag, self.compare))

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.sink)
