"""Diagnostics of attention: what eviction loses of it, what that does to outputs, and where attention goes without it.

Attention over all earlier tokens is recomputed from recorded queries and keys, tile by tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.analysis.recording import DiagnosticInput, Tape, Vectors

QUERIES_PER_TILE = 512


def dense_rows(vectors: Vectors, query_head: int) -> Iterator[tuple[slice, Tensor]]:
    """Tiles of query tokens with their probabilities over all tokens, (t, T) fp32, 0 at later tokens."""
    keys = vectors.keys[query_head // vectors.group].float()
    length = len(keys)
    for start in range(0, length, QUERIES_PER_TILE):
        tile = slice(start, min(start + QUERIES_PER_TILE, length))
        logits = vectors.queries[query_head, tile].float() @ keys.T * vectors.scaling
        if vectors.softcap is not None:
            logits = vectors.softcap * torch.tanh(logits / vectors.softcap)
        yield tile, logits.masked_fill(later(tile, length, keys.device), -torch.inf).softmax(-1)


def later(tile: slice, length: int, device: torch.device) -> Tensor:
    """(t, T) bool: tokens that come after each query token of the tile."""
    places = torch.arange(length, device=device)
    return places > places[tile].unsqueeze(-1)


def summed_by_pass(tape: Tape, numbers: Mapping[str, Tensor]) -> pd.DataFrame:
    """``step``, ``phase``, ``layer``, ``query_head``, ``queries`` (tokens of the pass), and each of the (L, H·G, T)
    ``numbers`` summed over the query tokens of a pass, in fp64."""
    layers, heads, _ = next(iter(numbers.values())).shape
    passes = len(tape.passes)
    index = pd.MultiIndex.from_product(
        [range(layers), range(heads), range(passes)], names=["layer", "query_head", "step"]
    )
    columns = {name: _sums(each, tape.fed_in.long(), passes).flatten().numpy() for name, each in numbers.items()}
    frame = pd.DataFrame(columns, index=index).reset_index()
    frame["phase"] = frame["step"].map({p.step: p.phase for p in tape.passes})
    frame["queries"] = frame["step"].map({p.step: p.stop - p.start for p in tape.passes})
    return frame[["step", "phase", "layer", "query_head", "queries", *numbers]]


def _sums(numbers: Tensor, fed_in: Tensor, passes: int) -> Tensor:
    """(L, H·G, T) to (L, H·G, passes) on the host."""
    sums = torch.zeros(*numbers.shape[:2], passes, dtype=torch.float64)
    return sums.index_add_(-1, fed_in.cpu(), numbers.double().cpu())


# Attention loss: the share of dense attention that falls on tokens which the policy had evicted by then.
#
# Source: HashEvict section 4.8 and Table 3, "the sum of the attention probabilities for the evicted tokens". Attention
# is that of the dense run on the same tokens (appendix D: "how much of the uncompressed attention matrix is
# preserved"); evicted is what each head no longer showed to that query in the policy's run. The paper does not say over
# which queries it averages; here every pass is a row, and queries from which nothing is hidden yet lose 0.


def attention_loss_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per pass, layer and query head: ``step``, ``phase``, ``layer``, ``query_head``, ``queries``,
    ``evicted`` (tokens hidden from a query, mean), ``loss`` (share of attention, 0 to 1, mean over the queries)."""
    tape, dense = evidence.run, evidence.dense.vectors
    heads, length = dense[0].queries.shape[:2]
    loss = torch.zeros(len(dense), heads, length, device=dense[0].queries.device)
    evicted = torch.zeros_like(loss)
    for layer, vectors in enumerate(dense):
        for head in range(heads):
            for tile, weights in dense_rows(vectors, head):
                gone = tape.evicted_for(layer, head // vectors.group, tile)
                loss[layer, head, tile] = (weights * gone).sum(-1)
                evicted[layer, head, tile] = gone.sum(-1).float()
    sums = summed_by_pass(tape, {"evicted": evicted, "loss": loss})
    return sums.assign(evicted=sums["evicted"] / sums["queries"], loss=sums["loss"] / sums["queries"])


def attention_loss_summary(attention_loss: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads and over all queries of passes in which something was hidden."""
    hidden = attention_loss[attention_loss["evicted"] > 0]
    total = (hidden["loss"] * hidden["queries"]).groupby(hidden["layer"]).sum()
    return (total / hidden.groupby("layer")["queries"].sum()).rename("loss").reset_index()


# First tokens: cosines between keys beside attention, the two heat maps of KeyDiff Figure 2.
#
# Source: KeyDiff Figure 2, the first 64 tokens of a prompt without eviction.


FIRST_TOKENS = 64


def first_tokens_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer, query head and pair of tokens: ``layer``, ``query_head``, ``query`` and ``key`` (positions),
    ``cosine`` (of the two tokens' keys, -1 to 1), ``attention`` (of query to key, 0 to 1; 0 for later keys)."""
    tape, parts = evidence.dense, []
    count = min(FIRST_TOKENS, len(tape.tokens))
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


def first_tokens_summary(first_tokens: pd.DataFrame) -> pd.DataFrame:
    """Correlation, per layer, of a key's mean cosine with the other keys and the attention it receives: mean over
    heads. The paper's observation is that it is negative."""
    later = first_tokens[first_tokens["query"] > first_tokens["key"]]
    received = later.groupby(["layer", "query_head", "key"])["attention"].mean()
    others = first_tokens[first_tokens["query"] != first_tokens["key"]]
    alike = others.groupby(["layer", "query_head", "key"])["cosine"].mean()
    both = pd.concat([received, alike], axis=1).dropna()
    heads = both.groupby(["layer", "query_head"]).apply(lambda head: head["attention"].corr(head["cosine"]))
    return heads.groupby("layer").mean().rename("attention_cosine_correlation").reset_index()


# Output error: how far eviction moves the attention output of a layer.
#
# Source: CAOTE appendix E.4, Figure 3: normalised mean squared error between the dense attention output and the output
# under eviction, per layer. The paper does not say on which hidden states the dense output is computed, nor how it
# normalises. Both readings are given: against ``own states`` the queries, keys and values of the policy's run attend to
# everything, which isolates what this layer's eviction does; against ``dense run`` errors of the layers below come on
# top. Errors are divided by the squared norm of the dense output. Outputs are per query head, before the output
# projection.


OWN_STATES, DENSE_RUN = "own states", "dense run"


def output_error_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per pass, layer, query head and reference: ``step``, ``phase``, ``layer``, ``query_head``, ``queries``,
    ``against``, ``squared_error`` and ``squared_norm`` (sums over queries), ``error`` (their ratio; 0 = no change).

    To average over passes, divide sums by sums.
    """
    run = evidence.run.vectors
    references = {
        OWN_STATES: [_unevicted(each) for each in run],
        DENSE_RUN: [each.outputs for each in evidence.dense.vectors],
    }
    parts = []
    for against, outputs in references.items():
        wanted = torch.stack(outputs).float()  # (L, H·G, T, D)
        given = torch.stack([each.outputs for each in run]).float()
        numbers = {
            "squared_error": (given - wanted).square().sum(-1),
            "squared_norm": wanted.square().sum(-1),
        }
        parts.append(summed_by_pass(evidence.run, numbers).assign(against=against))
    whole = pd.concat(parts, ignore_index=True)
    return whole.assign(error=whole["squared_error"] / whole["squared_norm"])


def _unevicted(vectors: Vectors) -> Tensor:
    """(H·G, T, D) fp32: the layer's outputs with every key and value still there."""
    outputs = torch.zeros_like(vectors.outputs, dtype=torch.float32)
    for head in range(len(outputs)):
        values = vectors.values[head // vectors.group].float()
        for tile, weights in dense_rows(vectors, head):
            outputs[head, tile] = weights @ values
    return outputs


def output_error_summary(output_error: pd.DataFrame) -> pd.DataFrame:
    """Per layer over all passes and heads."""
    sums = output_error.groupby(["layer", "against"])[["squared_error", "squared_norm"]].sum()
    return (sums["squared_error"] / sums["squared_norm"]).unstack().reset_index().rename_axis(columns=None)


# Window attention: what the last prompt tokens attend to, before any eviction.
#
# Source: K-VEC Figure 2, "windowed attention scores in SnapKV". The window is SnapKV's of 32 queries. Scores are the
# mean over its queries, per query head, without SnapKV's pooling over neighbours, which smooths them and moves nothing.


WINDOW = 32  # queries


def window_attention_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer, query head and prompt token, of the dense run: ``layer``, ``query_head``, ``position``,
    ``attention`` (0 to 1; sums to 1 over the tokens of a head)."""
    tape, parts = evidence.dense, []
    last = slice(max(0, tape.prompt_tokens - WINDOW), tape.prompt_tokens)
    for layer, vectors in enumerate(tape.vectors):
        for head in range(len(vectors.queries)):
            received = _mean_attention(vectors, head, last)[: tape.prompt_tokens]
            places = torch.arange(len(received)).numpy()
            columns = {"layer": layer, "query_head": head, "position": places, "attention": received.cpu().numpy()}
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _mean_attention(vectors: Vectors, head: int, asking: slice) -> Tensor:
    """(T,) fp32: mean probabilities of the queries in ``asking`` over all tokens."""
    wanted = range(asking.start, asking.stop)
    total = vectors.keys.new_zeros(vectors.keys.shape[1], dtype=torch.float32)
    for tile, weights in dense_rows(vectors, head):
        inside = [place - tile.start for place in wanted if tile.start <= place < tile.stop]
        total += weights[inside].sum(0)
    return total / len(wanted)


def window_attention_summary(window_attention: pd.DataFrame) -> pd.DataFrame:
    """Share of the window's attention that goes to the last tenth of the prompt: mean over heads."""
    late = window_attention["position"] >= 0.9 * (window_attention["position"].max() + 1)
    shares = window_attention[late].groupby(["layer", "query_head"])["attention"].sum()
    table: pd.DataFrame = shares.groupby("layer").mean().rename("on_last_tenth").reset_index()
    return table
