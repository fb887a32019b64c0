"""From one number per query token to one row per pass, layer and query head."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor

from harness.diagnostics.tape import Tape


def summed_by_pass(tape: Tape, numbers: Mapping[str, Tensor]) -> pd.DataFrame:
    """``step``, ``phase``, ``layer``, ``query_head``, ``queries`` (tokens of the pass), and each of the (L, H·G, T)
    ``numbers`` summed over the query tokens of a pass, in fp64."""
    layers, heads, _ = next(iter(numbers.values())).shape
    passes = len(tape.passes)
    index = pd.MultiIndex.from_product(
        [range(layers), range(heads), range(passes)], names=["layer", "query_head", "step"]
    )
    columns = {name: _sums(each, tape.asked_in.long(), passes).flatten().numpy() for name, each in numbers.items()}
    frame = pd.DataFrame(columns, index=index).reset_index()
    frame["phase"] = frame["step"].map({p.step: p.phase for p in tape.passes})
    frame["queries"] = frame["step"].map({p.step: p.stop - p.start for p in tape.passes})
    return frame[["step", "phase", "layer", "query_head", "queries", *numbers]]


def _sums(numbers: Tensor, asked_in: Tensor, passes: int) -> Tensor:
    """(L, H·G, T) to (L, H·G, passes) on the host."""
    sums = torch.zeros(*numbers.shape[:2], passes, dtype=torch.float64)
    return sums.index_add_(-1, asked_in.cpu(), numbers.double().cpu())
