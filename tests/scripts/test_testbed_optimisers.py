"""What training computes with: bfloat16 where the hardware has it, and the same Muon either way."""

import pytest
import torch

from scripts.testbed import arithmetic
from scripts.testbed.muon import Muon, orthogonal

SETTINGS = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.05}
SHAPES = [(48, 32), (32, 48), (32, 32)]  # upright, lying and square: each takes another way through the step


def after_steps(optimiser_of, shape, steps=5):
    generator = torch.Generator().manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(shape, generator=generator))
    optimiser = optimiser_of([weight])
    for _ in range(steps):
        weight.grad = torch.randn(shape, generator=generator)
        optimiser.step()
    return weight.detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_in_bfloat16_muon_is_torchs_to_the_bit(shape):
    ours = after_steps(lambda p: Muon(p, **SETTINGS, dtype=torch.bfloat16), shape)
    theirs = after_steps(lambda p: torch.optim.Muon(p, **SETTINGS, adjust_lr_fn="original"), shape)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_in_float32_muon_takes_the_same_way(shape):
    """Five steps of at most .025 per singular direction; bfloat16 rounds each by parts of a hundred."""
    exact = after_steps(lambda p: Muon(p, **SETTINGS, dtype=torch.float32), shape)
    rounded = after_steps(lambda p: Muon(p, **SETTINGS, dtype=torch.bfloat16), shape)
    still = after_steps(lambda p: Muon(p, **SETTINGS | {"lr": 0.0}, dtype=torch.float32), shape)
    moved = (still - exact).norm()
    assert (exact - rounded).norm() < 0.03 * moved
    assert not torch.equal(exact, rounded)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_orthogonal_matrix_has_singular_values_near_one(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(matrix, torch.float32))
    assert values.max() < 1.3
    assert values.median() > 0.6
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ orthogonal(matrix, torch.float32) @ right.T  # the same singular vectors: nothing off the diagonal
    torch.testing.assert_close(inside, inside.diagonal().diag(), rtol=0, atol=1e-4)


def test_the_setting_decides_and_auto_asks_the_hardware(monkeypatch):
    for setting, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        assert arithmetic.chosen({"bf16": setting, "device": "cpu"}) is dtype
    for found, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(arithmetic, "has_native_dtype", lambda asked, device, found=found: found)
        assert arithmetic.chosen({"bf16": "auto", "device": "cpu"}) is dtype
