"""FLOP by the papers' own formulas, for any model's shape.

KeyDiff: Appendix A.2.1, Eq. A.1. CAOTE: Appendix C, Eqs. 32 to 35.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class LlamaWidths:
    """Widths of a Llama. ``head``: of one head; ``kv``: of all KV heads together; ``inner``: of the feed-forward."""

    layers: int
    hidden: int
    head: int
    kv: int
    inner: int
    vocabulary: int

    @property
    def kv_heads(self) -> int:
        """H."""
        return self.kv // self.head


LLAMA_3_1_8B = LlamaWidths(layers=32, hidden=4096, head=128, kv=1024, inner=14336, vocabulary=128256)
TESTBED = LlamaWidths(layers=6, hidden=256, head=32, kv=64, inner=704, vocabulary=4096)
WIDTHS = {"llama3.1-8b": LLAMA_3_1_8B, "testbed": TESTBED}


def measured_widths(rows: pd.DataFrame) -> LlamaWidths | None:
    """The widths of the measured model; None for a model that is not in `WIDTHS`."""
    return WIDTHS.get(str(rows["model"].iloc[0]))


FlopFormula = Callable[[int, LlamaWidths], int]  # tokens, widths of the model → FLOP


def keydiff_score_flop(keys: int, width: int) -> int:
    """FLOP of one head's scores over so many keys of this width, without the selection (Eq. A.1)."""
    return (6 * width + 18) * keys + width + 17


def prefill_flop(tokens: int, shape: LlamaWidths) -> int:
    """FLOP of reading a prompt, as CAOTE counts them (Eq. 32)."""
    d = shape.hidden
    return 2 * shape.layers * tokens * d * (d + shape.kv + shape.inner + 2 * tokens + 6) + d * shape.vocabulary


def decode_flop(tokens: int, shape: LlamaWidths) -> int:
    """FLOP of one token over a cache of so many, as CAOTE counts them (Eq. 33)."""
    d = shape.hidden
    return 2 * shape.layers * d * (d + shape.kv + shape.inner + 2 * tokens + 6) + d * shape.vocabulary


def caote_flop(tokens: int, shape: LlamaWidths) -> int:
    """FLOP that CAOTE adds over so many tokens (Eq. 34)."""
    return shape.layers * tokens * (7 * shape.hidden + 3)


def fastcaote_flop(tokens: int, shape: LlamaWidths) -> int:
    """FLOP that FastCAOTE adds over so many tokens (Eq. 35)."""
    return shape.layers * tokens * (4 * shape.hidden + 3) + shape.layers
