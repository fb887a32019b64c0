"""What a policy may have to know of a model before any weights are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class ModelShape:
    """Layers, and heads in each of them."""

    layers: int
    kv_heads: int
    query_heads: int


@runtime_checkable
class Fitted(Protocol):
    """A part of a policy that does not work on every model. Parts that do leave the method out."""

    def reason_against_model(self, shape: ModelShape) -> str:
        """Why it cannot work on such a model, as a sentence with the remedy; empty where it can."""
        ...
