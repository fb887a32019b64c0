"""Views whose attention is given as probabilities, for one row and several heads."""

from __future__ import annotations

import torch

from policies import CacheView


class GivenAttention:
    """`policies.view.Attention` by its definitions; ``probabilities`` (H, G, m, n), queries are not given."""

    def __init__(self, probabilities: torch.Tensor) -> None:
        self.probabilities = probabilities

    def _last(self, rows: int | str) -> torch.Tensor:
        return self.probabilities if rows == "all" else self.probabilities[:, :, -rows:]

    def received(self, rows: int | str) -> torch.Tensor:
        return self._last(rows).mean(1).sum(1)[None]

    def strongest(self, rows: int) -> torch.Tensor:
        return self._last(rows).flatten(0, 1).amax(0).mean(0)[None]

    def rows(self, rows: int | str) -> torch.Tensor:
        return torch.tensor([[[self._last(rows).shape[2]]]])


def prompt_view(probabilities: torch.Tensor, budget: int, **fields: object) -> CacheView:
    """One prompt, read at once: slots in order of position; ``fields`` replace those of the view."""
    heads, _, _, n = probabilities.shape
    given = {
        "keys": torch.zeros(1, heads, n, 2),
        "values": torch.zeros(1, heads, n, 2),
        "positions": torch.arange(n, dtype=torch.int32).expand(1, heads, n).contiguous(),
        "attention": GivenAttention(probabilities),
        "state": {},
        "counts": (n,),
        "lengths": (n,),
        "budgets": (budget,),
        "prompt_lengths": (n,),
        "kept_before": torch.zeros(1, n, dtype=torch.long),
    }
    return CacheView(**{**given, **fields})


def random_attention(heads: int, group: int, rows: int, slots: int, seed: int = 0) -> torch.Tensor:
    """(H, G, m, n): the last rows of a causal softmax."""
    logits = 2 * torch.randn(heads, group, rows, slots, generator=torch.Generator().manual_seed(seed))
    future = torch.arange(slots) > torch.arange(slots - rows, slots)[:, None]
    return logits.masked_fill(future, -torch.inf).softmax(-1)


def kept_per_head(policy, shown: CacheView) -> list[list[int]]:
    """Positions that each head keeps, ascending."""
    mask, broken = policy.keep(shown)
    assert not broken.any()
    return [shown.positions[0, head][mask[0, head]].tolist() for head in range(mask.shape[1])]
