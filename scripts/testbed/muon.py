"""Muon: momentum, made orthogonal, for matrices inside the layers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.775, 2.0315)  # of the quintic iteration; Jordan et al., Muon (2024)
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` with a choice of the numbers its products are computed in.

    That one always multiplies bfloat16, and a processor without instructions for it spends most of a step there. In
    bfloat16 the two are equal to the bit (`tests/scripts/test_testbed_optimisers.py`).
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float, dtype: torch.dtype
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient, with Nesterov's look ahead."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group["lr"], group["momentum"], group["weight_decay"])

    def _update(self, parameter: Tensor, gradient: Tensor, rate: float, momentum: float, decay: float) -> None:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        update = orthogonal(gradient.lerp(buffer, momentum), self.dtype)
        rows, columns = parameter.shape
        parameter.mul_(1 - rate * decay)
        parameter.add_(update, alpha=-rate * max(1, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix of the same singular vectors whose singular values are near one: five steps of Newton and Schulz."""
    x = matrix.to(dtype)
    upright = matrix.shape[0] > matrix.shape[1]
    x = x.T if upright else x
    x = x / x.norm().clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if upright else x
