"""dense, window and sink (StreamingLLM): policies.md sections 3.1-3.3. Positions only, heads agree."""

import numpy as np

from tests.reference.policy import HeadView, LayerView, Policy, first_positions


class Dense(Policy):
    """Never evicts; the yardstick of every other policy (section 3.1)."""

    def due(self, view: LayerView) -> bool:
        return False


class Window(Policy):
    """S_j = pos_j: the N most recent slots survive (section 3.2)."""

    def score(self, head: HeadView) -> np.ndarray:
        return np.array(head.pos, dtype=np.float64)


class Sink(Window):
    """The first n_sink positions and the most recent tokens; N includes the sinks (section 3.3)."""

    def __init__(self, n_sink: int = 4, **common: str) -> None:
        super().__init__(**common)
        self.n_sink = n_sink

    def sinks(self, head: HeadView) -> set[int]:
        return first_positions(head, self.n_sink)
