"""What a diagnostic is computed from, and what it has to ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from harness.diagnostics.score_ranks import RankWatcher
from harness.diagnostics.tape import Tape

Need = Literal["vectors", "logits", "dense", "ranks"]


@dataclass(frozen=True)
class Evidence:
    """The policy's run, the dense run of the same tokens (the policy's own where nothing needed another), and the
    scores that were compared on the way."""

    run: Tape
    dense: Tape
    ranks: RankWatcher = field(default_factory=RankWatcher)


@dataclass(frozen=True)
class Diagnostic:
    """A tidy frame from the evidence, the short table that a terminal shows of it, and what must be recorded."""

    frame: Callable[[Evidence], pd.DataFrame]
    summary: Callable[[pd.DataFrame], pd.DataFrame]
    needs: frozenset[Need] = frozenset()
