"""``run(model=<object>)``: the rows are those of the same weights in a folder, and other weights are other cells."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.api.run import run
from harness.config.model_files import BUNDLED
from harness.errors import UserError

ASKED = {
    "policy": "sink", "budget": 48, "block_size": 32, "references": [], "limit": 2,
    "overrides": ["task.lengths=[192]", "task.repeats=1", "task.depths=[20,80]"],
}  # fmt: skip


@pytest.fixture
def own():
    folder = BUNDLED / "testbed"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def test_the_rows_are_those_of_the_named_model_and_the_weights_are_saved_once(own, tmp_path):
    model, tokenizer = own
    rows = run(model, tokenizer=tokenizer, results_dir=tmp_path, **ASKED)
    named = run("testbed", results_dir=tmp_path, **ASKED)
    assert rows["value"].tolist() == named["value"].tolist()
    assert rows["prediction"].tolist() == named["prediction"].tolist()
    assert set(rows["model"]) == {"testbed"}
    again = run([model], tokenizer=tokenizer, results_dir=tmp_path, **ASKED)
    assert set(again["cell_id"]) == set(rows["cell_id"])
    assert len(list((tmp_path / "models").iterdir())) == 1


def test_other_weights_are_another_cell(own, tmp_path):
    model, tokenizer = own
    before = run(model, tokenizer=tokenizer, results_dir=tmp_path, **ASKED)
    with torch.no_grad():
        model.lm_head.weight[3, 3] += 1
    after = run(model, tokenizer=tokenizer, results_dir=tmp_path, **ASKED)
    assert not set(after["cell_id"]) & set(before["cell_id"])


def test_what_cannot_be_taken_is_a_sentence(own, tmp_path):
    model, tokenizer = own
    for given, beside, sentence in (
        (model, None, "A model object comes without its tokenizer: add tokenizer=<its tokenizer>."),
        (torch.nn.Linear(2, 2), tokenizer, "not Linear: save it as a folder"),
        (model.double(), tokenizer, "The model computes in torch.float64: convert it to one of float32"),
    ):
        with pytest.raises(UserError, match=sentence):
            run(given, tokenizer=beside, results_dir=tmp_path, **ASKED)
    assert not (tmp_path / "models").exists()
