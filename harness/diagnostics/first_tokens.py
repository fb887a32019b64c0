"""First tokens: cosines between keys beside attention, the two heat maps of KeyDiff Figure 2.

Source: KeyDiff Figure 2, the first 64 tokens of a prompt without eviction.
"""

from __future__ import annotations

import pandas as pd
import torch
import torch.nn.functional as F

from harness.diagnostics.attention import dense_rows
from harness.diagnostics.evidence import Evidence

TOKENS = 64


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, query head and pair of tokens: ``layer``, ``query_head``, ``query`` and ``key`` (positions),
    ``cosine`` (of the two tokens' keys, -1 to 1), ``attention`` (of query to key, 0 to 1; 0 for later keys)."""
    tape, parts = evidence.dense, []
    count = min(TOKENS, len(tape.tokens))
    for layer, vectors in enumerate(tape.vectors):
        directions = F.normalize(vectors.keys[:, :count].float(), dim=-1)
        cosines = directions @ directions.transpose(1, 2)
        for head in range(len(vectors.queries)):
            _, weights = next(dense_rows(vectors, head))
            places = torch.arange(count)
            columns = {
                "layer": layer,
                "query_head": head,
                "query": places.repeat_interleave(count).numpy(),
                "key": places.repeat(count).numpy(),
                "cosine": cosines[head // vectors.group].flatten().cpu().numpy(),
                "attention": weights[:count, :count].flatten().cpu().numpy(),
            }
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def summary(first_tokens: pd.DataFrame) -> pd.DataFrame:
    """Correlation, per layer, of a key's mean cosine with the other keys and the attention it receives: mean over
    heads. The paper's observation is that it is negative."""
    later = first_tokens[first_tokens["query"] > first_tokens["key"]]
    received = later.groupby(["layer", "query_head", "key"])["attention"].mean()
    others = first_tokens[first_tokens["query"] != first_tokens["key"]]
    alike = others.groupby(["layer", "query_head", "key"])["cosine"].mean()
    both = pd.concat([received, alike], axis=1).dropna()
    heads = both.groupby(["layer", "query_head"]).apply(lambda head: head["attention"].corr(head["cosine"]))
    return heads.groupby("layer").mean().rename("attention_cosine_correlation").reset_index()
