"""Models over several devices: the same rows, and one sentence where accelerate is missing."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch
from workers.small_sweeps import cells

from harness.errors import UserError

PROMPT = torch.arange(3, 40)[None]


def spread(model):
    return replace(cells(model)[0].model, device_map="auto")


def test_a_model_loaded_by_device_map_says_the_same(model):
    pytest.importorskip("accelerate")
    with torch.inference_mode():
        placed = spread(model).load("cpu")
        said = placed(PROMPT.to(placed.device)).logits.cpu()
        torch.testing.assert_close(said, cells(model)[0].model.load("cpu")(PROMPT).logits)


def test_it_does_not_change_what_a_cell_is(model):
    cell = cells(model)[0]
    assert replace(cell, model=spread(model)).id == cell.id


def test_without_accelerate_it_says_what_to_install(model, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs accelerate: pip install"):
        spread(model).load("cpu")
