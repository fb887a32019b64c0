"""GemFilter: an early layer chooses tokens, and the model then reads only those (Shi et al. 2024; policies.md, 3.10).

It selects input, not cache: the chosen tokens are a new prompt at positions 0 … k - 1, the same in every layer and
head, and nothing is evicted afterwards. Nothing is protected: even the beginning-of-text or the last token may be
left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from policies.view import ModelShape, PolicyError


@dataclass(frozen=True)
class TokenFilter:
    """Tokens with the largest pooled score at one layer; the budget is how many of them stay.

    ``layer`` is counted from 0 (13 for Llama-3.1-8B, 19 for Mistral-Nemo and Phi-3.5-mini in the paper) or, below 1, a
    share of the model's depth, rounded down (13 of 32 layers are 0.41).
    """

    layer: float = 0.41
    kernel: int = 5  # tokens

    def __post_init__(self) -> None:
        if self.layer < 0 or (self.layer >= 1 and self.layer != int(self.layer)):
            raise PolicyError(f"gemfilter layer={self.layer} must be a layer (0, 1, 2, …) or a share below 1.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise PolicyError(f"gemfilter needs an odd pooling kernel (1, 3, 5, …), not {self.kernel}.")

    def reason_against_model(self, shape: ModelShape) -> str:
        """The filter layer has to exist."""
        try:
            self.layer_of(shape.layers)
        except PolicyError as error:
            return str(error)
        return ""

    def layer_of(self, layers: int) -> int:
        """The filter layer of a model with so many. Raises `PolicyError` where the model is too shallow."""
        chosen = int(self.layer * layers) if 0 < self.layer < 1 else int(self.layer)
        if chosen >= layers:
            raise PolicyError(
                f"gemfilter looks at layer {chosen}, but this model has layers 0 to {layers - 1}: "
                "lower policy.token_filter.layer."
            )
        return chosen

    def choose(self, query: Tensor, keys: Tensor, tokens: int) -> list[int]:
        """Indices of the ``tokens`` that stay, ascending.

        ``query`` (H·G, D) of the last prompt token, ``keys`` (H, T, D), both rotated. Scores are raw dot products,
        unscaled, summed over all query heads, then averaged over ``kernel`` neighbours with zeros beyond the ends. On
        equal scores the newer token stays (policies.md 1.3).
        """
        heads, length, width = keys.shape
        grouped = query.float().view(heads, -1, width)
        scores = (grouped @ keys.float().transpose(-1, -2)).sum((0, 1))
        pooled = F.avg_pool1d(scores.view(1, 1, -1), self.kernel, stride=1, padding=self.kernel // 2).flatten()
        if torch.isnan(pooled).any():
            raise PolicyError("gemfilter met a score that is not a number: check the model's dtype.")
        newest_first = pooled.flip(0).argsort(descending=True, stable=True)[:tokens]
        return sorted((length - 1 - newest_first).tolist())
