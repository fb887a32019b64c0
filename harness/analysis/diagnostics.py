"""All diagnostics by name, and the one call that computes them: one policy, one sample, one or two forward runs.

They are off unless asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from transformers import PreTrainedModel

from harness.analysis import attention_diagnostics, key_diagnostics, ranking_diagnostics, token_diagnostics
from harness.analysis.ranking_diagnostics import RankWatcher
from harness.analysis.recording import DenseRuns, Diagnostic, DiagnosticInput, Need, recorded
from harness.engine.requests import Prompting, Request
from harness.errors import UserError
from policies import Policy, nearest

OWN_VECTORS: frozenset[Need] = frozenset({"vectors"})
BOTH_VECTORS: frozenset[Need] = frozenset({"vectors", "dense"})

DIAGNOSTICS: dict[str, Diagnostic] = {
    "kept": Diagnostic(token_diagnostics.kept_frame, token_diagnostics.kept_summary),
    "survivors": Diagnostic(token_diagnostics.survivors_frame, token_diagnostics.survivors_summary),
    "memory": Diagnostic(token_diagnostics.memory_frame, token_diagnostics.memory_summary),
    "coverage": Diagnostic(token_diagnostics.coverage_frame, token_diagnostics.coverage_summary),
    "overlap": Diagnostic(token_diagnostics.overlap_frame, token_diagnostics.overlap_summary),
    "attention_loss": Diagnostic(
        attention_diagnostics.attention_loss_frame, attention_diagnostics.attention_loss_summary, BOTH_VECTORS
    ),
    "ranking_loss": Diagnostic(
        ranking_diagnostics.ranking_loss_frame, ranking_diagnostics.ranking_loss_summary, BOTH_VECTORS
    ),
    "output_error": Diagnostic(
        attention_diagnostics.output_error_frame, attention_diagnostics.output_error_summary, BOTH_VECTORS
    ),
    "prediction": Diagnostic(
        token_diagnostics.prediction_frame, token_diagnostics.prediction_summary, frozenset({"logits", "dense"})
    ),
    "score_ranks": Diagnostic(
        ranking_diagnostics.score_ranks_frame, ranking_diagnostics.score_ranks_summary, frozenset({"ranks"})
    ),
    "key_points": Diagnostic(key_diagnostics.key_points_frame, key_diagnostics.key_points_summary, OWN_VECTORS),
    "key_cosines": Diagnostic(key_diagnostics.key_cosines_frame, key_diagnostics.key_cosines_summary, OWN_VECTORS),
    "key_query": Diagnostic(key_diagnostics.key_query_frame, key_diagnostics.key_query_summary, OWN_VECTORS),
    "query_points": Diagnostic(key_diagnostics.query_points_frame, key_diagnostics.query_points_summary, OWN_VECTORS),
    "log_det": Diagnostic(key_diagnostics.log_det_frame, key_diagnostics.log_det_summary, OWN_VECTORS),
    "first_tokens": Diagnostic(
        attention_diagnostics.first_tokens_frame, attention_diagnostics.first_tokens_summary, BOTH_VECTORS
    ),
    "key_attention": Diagnostic(
        ranking_diagnostics.key_attention_frame, ranking_diagnostics.key_attention_summary, BOTH_VECTORS
    ),
    "window_attention": Diagnostic(
        attention_diagnostics.window_attention_frame, attention_diagnostics.window_attention_summary, BOTH_VECTORS
    ),
    "lsh": Diagnostic(ranking_diagnostics.lsh_frame, ranking_diagnostics.lsh_summary, BOTH_VECTORS),
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


@torch.inference_mode()
def diagnose(
    model: PreTrainedModel,
    tokens: Sequence[int],
    policy: Policy,
    budget: int,
    prompting: Prompting,
    what: Sequence[str],
    continuation: Sequence[int] = (),
    so_far: float = 0.0,
    dense_runs: DenseRuns | None = None,
) -> dict[str, pd.DataFrame]:
    """The frames asked for, by name; their columns are documented with each ``frame`` function of this package.

    ``tokens`` are the prompt, ``budget`` slots per layer and KV head (ignored by a dense policy), which grow to the
    share ``so_far`` of all tokens. ``continuation`` is fed after the prompt one token at a time, as decode steps;
    policies that evict only after the prompt change nothing before it. ``dense_runs``: those of this model, shared
    with calls for other policies on the same prompt. Raises the errors of `harness.config.cell.USER_ERRORS`.
    """
    diagnostics = chosen(what)
    needs = frozenset[Need]().union(*(each.needs for each in diagnostics.values()))
    check(policy, what)
    row = Request(tokens, policy, 0 if policy.is_dense else budget, so_far=so_far)
    ranks = RankWatcher()
    run = recorded(model, row, continuation, prompting, needs, [ranks] if "ranks" in needs else [])
    dense = run
    if "dense" in needs and not policy.is_dense:
        dense = (dense_runs or DenseRuns(model)).tape(tokens, continuation, prompting, needs)
    evidence = DiagnosticInput(run, dense, ranks.rows)
    frames = {name: each.frame(evidence) for name, each in diagnostics.items()}
    for frame in frames.values():
        frame.attrs["invalid"] = run.invalid  # the invariant that this run broke, as in the rows of a sweep
    return frames


def check(policy: Policy, what: Sequence[str]) -> None:
    """Raise `UserError` where a diagnostic is not defined for this policy."""
    if policy.token_filter is not None:
        raise UserError(
            f"Policy '{policy.name}' chooses prompt tokens before the model reads them and evicts nothing from a "
            "cache, so there is nothing to diagnose: choose another policy."
        )
    for name, diagnostic in chosen(what).items():
        if "vectors" in diagnostic.needs and (policy.rope != "absolute" or policy.logit_scale != "none"):
            raise UserError(
                f"Diagnostic '{name}' looks at keys and attention in the text's own positions, and those of policy "
                f"'{policy.name}' depend on what its cache holds: set policy.rope=absolute and policy.logit_scale=none."
            )
        if "ranks" in diagnostic.needs and (policy.scorer is None or not policy.scorer.nonnegative):
            raise UserError(
                f"Diagnostic '{name}' puts CAOTE over the policy's scores, which must be an attention mass, and those "
                f"of '{policy.name}' are not: choose a policy over h2o, tova or snapkv."
            )
