"""Floating-point operations, counted while they happen: every operation that torch dispatches within a block.

Products count 2 a multiply-add. Element-wise arithmetic counts one an element, but a division 5 and a square root 8,
the weights of KeyDiff's Appendix A.2.1; a reduction counts its input. Comparisons, sorting, copies and integers count
nothing, as in the papers' formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DIVISION, ROOT = 5, 8
SOFTMAX = 3 + DIVISION  # an element: subtract, exponential, add, divide
ELEMENTS: Mapping[str, int] = {
    "add": 1, "add_": 1, "sub": 1, "sub_": 1, "rsub": 1, "mul": 1, "mul_": 1, "neg": 1, "exp": 1, "log": 1, "cos": 1,
    "sin": 1, "tanh": 1, "pow": 1, "div": DIVISION, "div_": DIVISION, "reciprocal": DIVISION, "sqrt": ROOT,
    "rsqrt": ROOT + DIVISION, "silu": 2 + DIVISION, "sigmoid": 2 + DIVISION, "scatter_add": 1, "scatter_add_": 1,
    "index_add": 1, "lerp": 3, "addcmul": 2, "addcmul_": 2,
}  # fmt: skip
REDUCED: Mapping[str, int] = {"sum": 1, "mean": 1, "cumsum": 1, "linalg_vector_norm": 2, "norm": 2, "var": 3, "std": 3}


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``operations`` of everything that is computed within the block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute, and add what it took."""
        out = func(*args, **(kwargs or {}))
        self.operations += _operations(func.overloadpacket.__name__, args, kwargs or {}, out)
        return out


def _operations(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int:
    if name in _PRODUCTS:
        return _PRODUCTS[name](args, kwargs)
    first = next(iter(_tensors(out)), None)
    if first is None or not first.is_floating_point():
        return 0
    if name in ELEMENTS:
        return ELEMENTS[name] * int(first.numel())
    if name in REDUCED:
        return REDUCED[name] * int(args[0].numel())
    if name in ("_softmax", "_log_softmax"):
        return SOFTMAX * int(first.numel())
    if name == "avg_pool1d" or name == "avg_pool2d":
        return int(math.prod(args[1]) * first.numel())
    return 0


def _tensors(out: Any) -> list[Tensor]:
    return [each for each in (out if isinstance(out, tuple | list) else (out,)) if isinstance(each, Tensor)]


def _product(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    left, right = args[-2], args[-1]
    return int(2 * left.numel() * right.shape[-1])


def _attention(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Two products and a softmax over what each query row may see; masked places are computed, causal ones are not."""
    query, keys, values = args[:3]
    rows, slots = query.shape[-2], keys.shape[-2]
    causal = bool(kwargs.get("is_causal", args[4] if len(args) > 4 else False))
    pairs = rows * (rows + 1) // 2 if causal else rows * slots
    heads = query.shape[0] * query.shape[1]
    return int(heads * pairs * (2 * (query.shape[-1] + values.shape[-1]) + SOFTMAX))


_PRODUCTS: Mapping[str, Callable[[tuple[Any, ...], Mapping[str, Any]], int]] = {
    "mm": _product,
    "bmm": _product,
    "addmm": _product,
    "baddbmm": _product,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_attention_math": _attention,
}


def operations_of(work: Callable[[], object]) -> int:
    """Of one call."""
    with torch.inference_mode(False), torch.no_grad(), Counted() as counted:
        work()
    return int(counted.operations)
