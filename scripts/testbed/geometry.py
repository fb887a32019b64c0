"""What the keys of a model look like and where its attention goes, dense: ``python -m scripts.testbed.geometry``.

The observations that the papers make on Llama and other large models, measured on a small one: sinks (StreamingLLM),
keys alike but for a few that get more attention (KeyDiff 3.1, Figure 2), small norms of attended keys (L2).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import tasks
from harness.analysis.ranking_diagnostics import spearman

SHIPPED = Path(__file__).parents[2] / "harness" / "testbed"
WINDOW = 32  # last queries, whose attention is looked at


@dataclass(frozen=True)
class Geometry:
    """One KV head of one layer, one prompt. Attention is the mean of the last `WINDOW` queries of the head's group."""

    first: float  # share of attention on the first token
    near: float  # share on the window itself
    cosine: float  # mean cosine of a key to the mean direction (KeyDiff's anchor)
    norm_of_first: float  # in median norms of all keys
    distinct: float  # Spearman, over tokens between first and window: cosine to the anchor with attention
    short: float  # Spearman, over the same tokens: norm with attention


def described(keys: Tensor, attention: Tensor) -> Geometry:
    """``keys`` [T, D] as stored (after RoPE), ``attention`` [T] of the last queries."""
    directions = F.normalize(keys.float(), dim=-1)
    to_anchor = directions @ F.normalize(directions.mean(0), dim=0)
    norms = torch.linalg.vector_norm(keys.float(), dim=-1)
    between = slice(1, len(keys) - WINDOW)
    return Geometry(
        first=float(attention[0]),
        near=float(attention[-WINDOW:].sum()),
        cosine=float(to_anchor.mean()),
        norm_of_first=float(norms[0] / norms.median()),
        distinct=spearman(to_anchor[between], attention[between]),
        short=spearman(norms[between], attention[between]),
    )


@torch.no_grad()
def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, length: int, repeats: int) -> pd.DataFrame:
    """One row per sample of `niah`, layer and KV head: the fields of `Geometry`. The model needs eager attention."""
    rows = []
    for sample in tasks.build("niah", lengths=[length], depths=[50], repeats=repeats).samples(tokenizer):
        ids = torch.tensor([tokenizer.encode(sample.prompt)])
        done = model(ids, output_attentions=True, use_cache=True)
        for layer, weights in enumerate(done.attentions):
            keys = done.past_key_values.layers[layer].keys[0]  # [H, T, D]
            seen = weights[0, :, -WINDOW:].mean(1).view(len(keys), -1, ids.shape[1]).mean(1)  # [H, T]
            for head in range(len(keys)):
                found = asdict(described(keys[head], seen[head]))
                rows.append({"sample_id": sample.id, "layer": layer, "head": head, **found})
    return pd.DataFrame(rows)


def main() -> None:
    """Prints the means over samples and heads of each layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED, help="a model in transformers format")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a prompt")
    parser.add_argument("--repeats", type=int, default=10, help="prompts")
    asked = parser.parse_args()
    model = LlamaForCausalLM.from_pretrained(asked.folder, dtype=torch.float32, attn_implementation="eager").eval()
    rows = measure(model, PreTrainedTokenizerFast.from_pretrained(asked.folder), asked.length, asked.repeats)
    means = rows.drop(columns=["sample_id", "head"]).groupby("layer").mean()
    print(f"{asked.folder}: means over {asked.repeats} prompts of {asked.length} tokens and the KV heads of a layer")
    print(means.round(2).to_string())


if __name__ == "__main__":
    main()
