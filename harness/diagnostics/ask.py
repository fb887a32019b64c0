"""The entry point: one policy, one sample, any diagnostics; off unless asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from transformers import PreTrainedModel

from harness.diagnostics.catalogue import chosen
from harness.diagnostics.evidence import Evidence, Need
from harness.diagnostics.forced import follow
from harness.diagnostics.score_ranks import RankWatcher
from harness.diagnostics.tape import Tape
from harness.diagnostics.taping import Taping
from harness.engine.rows import Prompting, Row
from harness.engine.watch import Watcher
from harness.errors import UserError
from policies import DENSE, Policy


@torch.inference_mode()
def diagnose(
    model: PreTrainedModel,
    tokens: Sequence[int],
    policy: Policy,
    budget: int,
    prompting: Prompting,
    what: Sequence[str],
    continuation: Sequence[int] = (),
) -> dict[str, pd.DataFrame]:
    """The frames asked for, by name; their columns are documented with each ``frame`` function of this package.

    ``tokens`` are the prompt, ``budget`` slots per layer and KV head (ignored by a dense policy). ``continuation`` is
    fed behind the prompt one token at a time, as decode steps; policies that evict after the prompt only change
    nothing before. One or two forward runs, whatever is asked. Raises the errors of `harness.errors.MENDABLE`.
    """
    diagnostics = chosen(what)
    needs = frozenset[Need]().union(*(each.needs for each in diagnostics.values()))
    check(policy, what)
    row = Row(tokens, policy, 0 if policy.is_dense else budget)
    ranks = RankWatcher()
    run = _taped(model, row, continuation, prompting, needs, [ranks] if "ranks" in needs else [])
    dense = run
    if "dense" in needs and not policy.is_dense:
        dense = _taped(model, Row(tokens, DENSE), continuation, prompting, needs, [])
    evidence = Evidence(run, dense, ranks)
    frames = {name: each.frame(evidence) for name, each in diagnostics.items()}
    for frame in frames.values():
        frame.attrs["invalid"] = run.invalid  # the promise that this run broke, as in the rows of a sweep
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


def _taped(
    model: PreTrainedModel,
    row: Row,
    continuation: Sequence[int],
    prompting: Prompting,
    needs: frozenset[Need],
    others: Sequence[Watcher],
) -> Tape:
    taping = Taping(vectors="vectors" in needs, logits="logits" in needs)
    ledger = follow(model, row, continuation, prompting, [taping, *others])
    return taping.tape([*row.tokens, *continuation], len(row.tokens), ledger.invalid)
