"""Every diagnostic under the name by which it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.diagnostics import (
    attention_loss,
    coverage,
    first_tokens,
    kept,
    key_cosines,
    key_points,
    key_query,
    log_det,
    lsh,
    output_error,
    overlap,
    prediction,
    query_points,
    ranking_loss,
    score_ranks,
    survivors,
    window_attention,
)
from harness.diagnostics.evidence import Diagnostic, Need
from harness.errors import UserError
from policies import nearest

OWN_VECTORS: frozenset[Need] = frozenset({"vectors"})
BOTH_VECTORS: frozenset[Need] = frozenset({"vectors", "dense"})

DIAGNOSTICS: dict[str, Diagnostic] = {
    "kept": Diagnostic(kept.frame, kept.summary),
    "survivors": Diagnostic(survivors.frame, survivors.summary),
    "coverage": Diagnostic(coverage.frame, coverage.summary),
    "overlap": Diagnostic(overlap.frame, overlap.summary),
    "attention_loss": Diagnostic(attention_loss.frame, attention_loss.summary, BOTH_VECTORS),
    "ranking_loss": Diagnostic(ranking_loss.frame, ranking_loss.summary, BOTH_VECTORS),
    "output_error": Diagnostic(output_error.frame, output_error.summary, BOTH_VECTORS),
    "prediction": Diagnostic(prediction.frame, prediction.summary, frozenset({"logits", "dense"})),
    "score_ranks": Diagnostic(score_ranks.frame, score_ranks.summary, frozenset({"ranks"})),
    "key_points": Diagnostic(key_points.frame, key_points.summary, OWN_VECTORS),
    "key_cosines": Diagnostic(key_cosines.frame, key_cosines.summary, OWN_VECTORS),
    "key_query": Diagnostic(key_query.frame, key_query.summary, OWN_VECTORS),
    "query_points": Diagnostic(query_points.frame, query_points.summary, OWN_VECTORS),
    "log_det": Diagnostic(log_det.frame, log_det.summary, OWN_VECTORS),
    "first_tokens": Diagnostic(first_tokens.frame, first_tokens.summary, BOTH_VECTORS),
    "window_attention": Diagnostic(window_attention.frame, window_attention.summary, BOTH_VECTORS),
    "lsh": Diagnostic(lsh.frame, lsh.summary, BOTH_VECTORS),
}


def chosen(what: Sequence[str]) -> dict[str, Diagnostic]:
    """The diagnostics of these names. Raises `UserError` for an unknown one, or for none."""
    if not what:
        raise UserError(
            f"Nothing to diagnose: add what=[{','.join(list(DIAGNOSTICS)[:2])}]. {nearest('', DIAGNOSTICS)}"
        )
    for name in what:
        if name not in DIAGNOSTICS:
            raise UserError(f"There is no diagnostic called '{name}'. {nearest(name, DIAGNOSTICS)}")
    return {name: DIAGNOSTICS[name] for name in what}
