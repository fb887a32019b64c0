"""Diagnostics of tokens: which ones each head holds and until when, and how well they are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from harness.analysis.recording import NEVER, DiagnosticInput

_UNFINISHED = "\ufffd"  # what a tokenizer shows for a character of which only some bytes have come


def pieces(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text that each token adds to that of the tokens before it, special tokens included.

    Together the pieces are the whole text. A character made of several tokens belongs to the last of them; the others
    add "". A token alone may decode to other text than in its context (a word start loses its space), so each is
    decoded together with the piece before it, as text streamers do.
    """

    def text(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    found: list[str] = []
    before, done = 0, 0  # tokens[before:done] have been shown and are read again; those from `done` on are pending
    for end in range(1, len(tokens) + 1):
        shown, whole = text(tokens[before:done]), text(tokens[before:end])
        if whole.endswith(_UNFINISHED) and end < len(tokens):
            found.append("")
            continue
        found.append(whole[len(shown) :])
        before, done = done, end
    return found


# Which tokens each head holds, after every prompt block and every decode step.
#
# Source: what K-VEC Figures 3 and 4 and KeyDiff Figure 4 are drawn from.


def kept_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per held token: ``step``, ``phase``, ``fed`` (tokens fed so far), ``layer``, ``head`` (KV head),
    ``position`` (place in the text, from 0)."""
    tape, parts = evidence.run, []
    for moment in tape.passes:
        places = tape.held_after(moment).nonzero().cpu().numpy()
        part = pd.DataFrame(places, columns=["layer", "head", "position"]).astype("int32")
        parts.append(part.assign(step=moment.step, phase=moment.phase, fed=moment.stop))
    whole = pd.concat(parts, ignore_index=True)
    return whole[["step", "phase", "fed", "layer", "head", "position"]]


def kept_summary(kept: pd.DataFrame) -> pd.DataFrame:
    """Tokens held by each head after the last step, and where they lie on average."""
    last = kept[kept["step"] == kept["step"].max()]
    heads: pd.DataFrame = last.groupby(["layer", "head"], as_index=False).agg(
        held=("position", "size"), mean_position=("position", "mean")
    )
    return heads


# Memory and evictions over the length of the text, after every prompt block and every decode step.


def memory_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per step: ``step``, ``phase``, ``fed`` (tokens fed so far), ``answer`` (of them after the prompt),
    ``held`` (slots, mean of all layers and heads), ``most`` (of any of them), ``evicted`` (tokens, mean)."""
    tape, rows = evidence.run, []
    for moment in tape.passes:
        by_head = tape.held_after(moment).sum(-1).double()
        held, answer = float(by_head.mean()), max(0, moment.stop - tape.prompt_tokens)
        rows.append((moment.step, moment.phase, moment.stop, answer, held, int(by_head.max()), moment.stop - held))
    return pd.DataFrame(rows, columns=["step", "phase", "fed", "answer", "held", "most", "evicted"])


def memory_summary(memory: pd.DataFrame) -> pd.DataFrame:
    """After the prompt, and at the end."""
    ends: pd.DataFrame = pd.concat([after_prompt(memory), memory[memory["step"] == memory["step"].max()]])
    return ends.drop_duplicates("step")


# Coverage: the share of prompt tokens that at least one head still holds.
#
# Source: K-VEC section 3.2 and Tables 6 and 7, C = unique tokens kept across heads and layers. The paper prints a share
# without its denominator; ours are the prompt tokens fed so far, all prompt tokens from the last prompt block on.
# Table 7 is then coverage - 1.


ALL_LAYERS = -1


def coverage_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per step and layer, and one for all layers together (``layer`` = -1): ``step``, ``phase``, ``layer``,
    ``tokens`` (prompt tokens fed so far), ``covered`` (of them, held by some head), ``coverage`` (share, 0 to 1)."""
    tape, rows = evidence.run, []
    for moment in tape.passes:
        tokens = min(moment.stop, tape.prompt_tokens)
        by_layer = tape.held_after(moment)[..., :tokens].any(1)
        covered = [(ALL_LAYERS, int(by_layer.any(0).sum())), *enumerate(by_layer.sum(-1).tolist())]
        rows += [(moment.step, moment.phase, layer, tokens, held, held / tokens) for layer, held in covered]
    return pd.DataFrame(rows, columns=["step", "phase", "layer", "tokens", "covered", "coverage"])


def coverage_summary(coverage: pd.DataFrame) -> pd.DataFrame:
    """After the last prompt block."""
    return after_prompt(coverage)[["layer", "tokens", "covered", "coverage"]]


def after_prompt(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last prompt block."""
    prompt: pd.DataFrame = frame[frame["phase"] == "prompt"]
    last: pd.DataFrame = prompt[prompt["step"] == prompt["step"].max()]
    return last


# Overlap: how many tokens two heads of one layer hold in common.
#
# Source: K-VEC section 4.1 speaks of overlapping heads without a measure; ours is the Jaccard index. Equal sets give 1,
# disjoint ones 0.


def overlap_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per step, layer and pair of KV heads: ``step``, ``phase``, ``layer``, ``head`` < ``other``, ``shared``
    (tokens), ``jaccard`` (shared / held by either, 0 to 1)."""
    tape, parts = evidence.run, []
    first, second = torch.triu_indices(tape.left_at.shape[1], tape.left_at.shape[1], offset=1)
    for moment in tape.passes:
        held = tape.held_after(moment).float().cpu()
        common = held @ held.transpose(1, 2)  # (L, H, H)
        count = held.sum(-1)
        shared = common[:, first, second]
        either = (count[:, first] + count[:, second] - shared).clamp(min=1)
        layers = torch.arange(len(held)).unsqueeze(-1).expand_as(shared)
        columns = {
            "step": moment.step,
            "phase": moment.phase,
            "layer": layers.flatten().numpy(),
            "head": first.expand_as(shared).flatten().numpy(),
            "other": second.expand_as(shared).flatten().numpy(),
            "shared": shared.int().flatten().numpy(),
            "jaccard": (shared / either).flatten().numpy(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def overlap_summary(overlap: pd.DataFrame) -> pd.DataFrame:
    """Mean over pairs after the last prompt block."""
    last = after_prompt(overlap)
    layers: pd.DataFrame = last.groupby("layer", as_index=False)[["shared", "jaccard"]].mean()
    return layers


# Survivors: when each head evicts each token. The whole history of a cache, in one number per head and token.
#
# Source: K-VEC Figures 3 and 4 and KeyDiff Figure 4 show single moments of it. An evicted token never returns, so the
# pass after which it is missing is enough.


STAYS = -1  # in `left_at`: held after the last pass


def survivors_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer, head and token fed (prompt, then continuation): ``layer``, ``head`` (KV head), ``position``,
    ``token`` (id), ``phase`` (prompt or decode, of the pass that fed it), ``fed_in`` (its step), ``left_at`` (the first
    step after which the head no longer holds it, `STAYS` where it is held to the end)."""
    tape = evidence.run
    layers, heads, fed = tape.left_at.shape
    left_at = tape.left_at.cpu()
    phases = pd.Categorical([p.phase for p in tape.passes], categories=["prompt", "decode"])
    fed_in = tape.fed_in.cpu().long()
    places = torch.cartesian_prod(torch.arange(layers), torch.arange(heads), torch.arange(fed)).numpy()
    columns = {
        **{name: places[:, at].astype("int32") for at, name in enumerate(("layer", "head", "position"))},
        "token": torch.tensor(tape.tokens, dtype=torch.int32).repeat(layers * heads).numpy(),
        "phase": phases[fed_in.repeat(layers * heads).numpy()],
        "fed_in": fed_in.int().repeat(layers * heads).numpy(),
        "left_at": left_at.masked_fill(left_at == NEVER, STAYS).flatten().numpy(),
    }
    return pd.DataFrame(columns)


def survivors_summary(survivors: pd.DataFrame) -> pd.DataFrame:
    """After the last step: how many tokens are held by how many of the heads of all layers."""
    held = (survivors["left_at"] == STAYS).groupby(survivors["position"]).sum()
    counts = held.value_counts().sort_index(ascending=False)
    return pd.DataFrame({"heads": counts.index, "tokens": counts.to_numpy()})


# Prediction: what eviction does to the next-token distribution, on the same teacher-forced tokens.
#
# Source: CAOTE appendix D.2 (eviction error moves the logits) names no measure; ours are the Kullback-Leibler
# divergence KL(dense ‖ policy) and the difference of the negative log likelihood (its perplexity tables).


ROWS_PER_TILE = 256  # tokens whose two distributions exist at one time


def prediction_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per predicted token: ``step`` and ``phase`` of the pass that predicted it, ``position`` of the token,
    ``nll`` and ``nll_dense`` (nats), ``nll_difference`` (policy - dense), ``kl`` (nats), ``agrees`` (whether both
    rank the same token first)."""
    tape, dense = evidence.run, evidence.dense
    truth = torch.tensor(tape.tokens[1:], device=tape.logits.device)
    parts = []
    for start in range(0, len(truth), ROWS_PER_TILE):
        tile = slice(start, min(start + ROWS_PER_TILE, len(truth)))
        given, wanted = tape.logits[tile].log_softmax(-1), dense.logits[tile].log_softmax(-1)
        target = truth[tile].unsqueeze(-1)
        columns = {
            "nll": -given.gather(-1, target).squeeze(-1),
            "nll_dense": -wanted.gather(-1, target).squeeze(-1),
            "kl": (wanted.exp() * (wanted - given)).sum(-1),
            "agrees": given.argmax(-1) == wanted.argmax(-1),
        }
        parts.append(pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()}))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["nll", "nll_dense", "kl", "agrees"])
    steps = tape.fed_in[: len(truth)].cpu().numpy()
    whole = whole.assign(
        step=steps,
        phase=[tape.passes[step].phase for step in steps],
        position=range(1, len(truth) + 1),
        nll_difference=whole["nll"] - whole["nll_dense"],
    )
    return whole[["step", "phase", "position", "nll", "nll_dense", "nll_difference", "kl", "agrees"]]


def prediction_summary(prediction: pd.DataFrame) -> pd.DataFrame:
    """Means over tokens."""
    return prediction.groupby("phase", as_index=False)[["nll", "nll_dense", "nll_difference", "kl", "agrees"]].mean()
