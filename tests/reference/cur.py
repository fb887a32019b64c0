"""CUR: leverage of keys and values (policies.md section 3.21; CurDKV, NVIDIA/kvpress)."""

import numpy as np

from tests.reference.policy import HeadView, Policy, first_positions


def shares(vectors: np.ndarray, window: int) -> list[float]:
    """(n, D) in the order of the text -> n shares of the window's squared norms; 0 in a window without any."""
    squares = [float(np.dot(x, x)) for x in vectors]
    width = window or len(squares)
    out = []
    for start in range(0, len(squares), width):
        own = squares[start : start + width]
        out += [x / sum(own) if sum(own) else 0.0 for x in own]
    return out


class CUR(Policy):
    """Windows are made of the slots present, sinks included."""

    def __init__(self, leverage: str = "kv_product", window: int = 16, sink: int = 4, **common: str) -> None:
        super().__init__(**common)
        self.leverage, self.window, self.sink = leverage, window, sink

    def score(self, head: HeadView) -> np.ndarray:
        key, value = shares(head.k, self.window), shares(head.v, self.window)
        both = {
            "kv_product": [a * b for a, b in zip(key, value, strict=True)],
            "kv_avg": [(a + b) / 2 for a, b in zip(key, value, strict=True)],
            "key": key,
            "value": value,
        }[self.leverage]
        return np.array([x / sum(both) if sum(both) else 0.0 for x in both])

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.sink)
