"""Coverage: the share of prompt tokens that at least one head still holds.

Source: K-VEC section 3.2 and Tables 6 and 7, C = unique tokens kept across heads and layers. The paper prints a share
without its denominator; ours are the prompt tokens fed so far, all prompt tokens from the last prompt block on.
Table 7 is then coverage - 1.
"""

from __future__ import annotations

import pandas as pd

from harness.diagnostics.evidence import Evidence

ALL_LAYERS = -1


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per step and layer, and one for all layers together (``layer`` = -1): ``step``, ``phase``, ``layer``,
    ``tokens`` (prompt tokens fed so far), ``covered`` (of them, held by some head), ``coverage`` (share, 0 to 1)."""
    tape, rows = evidence.run, []
    for moment in tape.passes:
        tokens = min(moment.stop, tape.prompt_tokens)
        by_layer = tape.held_after(moment)[..., :tokens].any(1)
        covered = [(ALL_LAYERS, int(by_layer.any(0).sum())), *enumerate(by_layer.sum(-1).tolist())]
        rows += [(moment.step, moment.phase, layer, tokens, held, held / tokens) for layer, held in covered]
    return pd.DataFrame(rows, columns=["step", "phase", "layer", "tokens", "covered", "coverage"])


def summary(coverage: pd.DataFrame) -> pd.DataFrame:
    """After the last prompt block."""
    return after_prompt(coverage)[["layer", "tokens", "covered", "coverage"]]


def after_prompt(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last prompt block."""
    prompt: pd.DataFrame = frame[frame["phase"] == "prompt"]
    last: pd.DataFrame = prompt[prompt["step"] == prompt["step"].max()]
    return last
