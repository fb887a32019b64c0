"""Cell identity: exactly the fields that change outputs, and nothing else."""

from __future__ import annotations

import json

import pytest
from composed import composed
from omegaconf import OmegaConf

from harness.config import identity, model_files, source_code
from harness.config.cell import Cell


def cell(*overrides: str) -> Cell:
    return Cell.parse(OmegaConf.to_container(composed(*overrides), resolve=True))


@pytest.mark.parametrize(
    "override",
    [
        "policy=h2o", "budget=128", "budget_of=longest", "prompt=one_shot", "block_size=64", "task=book_perplexity",
        "task.needles=3", "seed=1", "model.dtype=bfloat16", "policy.protect.sinks=2", "policy.schedule.decode=never",
    ],
)  # fmt: skip
def test_what_changes_outputs_changes_the_cell(override):
    assert cell(override).id != cell().id


@pytest.mark.parametrize("override", ["device=cpu", "limit=3", "results_dir=/elsewhere", "name=other", "references=[]"])
def test_what_does_not_change_outputs_does_not(override):
    assert cell(override).id == cell().id


def test_short_names_are_the_same_cell():
    assert cell("policy=h2o").id == cell("policy=h2o/keydiff").id


@pytest.mark.parametrize("ignored", ["budget=64", "budget_of=longest"])
def test_a_dense_cell_has_no_budget(ignored):
    assert cell("policy=dense", ignored).id == cell("policy=dense").id


def test_the_block_size_belongs_to_the_blocked_regime_only():
    assert cell("prompt=one_shot", "block_size=7").id == cell("prompt=one_shot").id


def test_ways_to_write_a_budget_are_the_same_cell():
    assert cell("budget=1k").id == cell("budget=1024").id
    assert cell("budget=0.25").id == cell("budget=25%").id


def test_a_whole_number_is_the_same_setting_however_it_is_written():
    whole, written_as_float = (cell("policy=snapkv", f"policy.protect.recent={number}") for number in ("16", "16.0"))
    assert whole == written_as_float
    assert whole.id == written_as_float.id
    assert cell("policy=snapkv", "policy.protect.recent=0.5").id != cell("policy=snapkv", "policy.protect.recent=0").id


def test_the_identity_is_plain_data_and_stable():
    assert cell().identity == cell().identity
    assert set(cell().identity) == {"format", "model", "policy", "budget", "prompt", "task", "code"}
    json.dumps(cell().identity)


def test_the_configuration_is_kept_beside_the_identity():
    described = cell("device=cpu").description()
    assert described["resolved"]["device"] == "cpu"
    assert "device" not in json.dumps(described["config"])


def edited(monkeypatch, file: str) -> None:
    """As if the code in this file of ours were another."""
    real = source_code.hash_code
    monkeypatch.setattr(
        source_code, "hash_code", lambda path: "edited" if path == source_code.ROOT / file else real(path)
    )


@pytest.mark.parametrize(
    "file",
    [
        "harness/runner/samples.py", "harness/runner/prompt_encoder.py", "harness/config/budget.py",
        "harness/config/model.py", "harness/engine/engine.py", "harness/engine/batch/evict.py",
        "harness/engine/decode/decode_batch.py",
        "policies/keydiff.py", "policies/policy.py", "policies/scorer.py", "policies/selection.py", "policies/view.py",
        "tasks/niah.py", "tasks/haystack.py", "tasks/base.py",
    ],
)  # fmt: skip
def test_code_between_configuration_and_rows_changes_the_cell(monkeypatch, file):
    before = cell().id
    edited(monkeypatch, file)
    assert cell().id != before


@pytest.mark.parametrize(
    "file",
    [
        "policies/caote.py", "policies/h2o.py", "policies/registry.py", "tasks/ruler.py", "tasks/__init__.py",
        "harness/runner/worker.py", "harness/runner/plan.py", "harness/runner/memory.py", "harness/store/store.py",
        "harness/runner/sweep.py",
    ],
)  # fmt: skip
def test_code_that_this_cell_does_not_run_through_does_not(monkeypatch, file):
    before = cell().id
    edited(monkeypatch, file)
    assert cell().id == before


def test_two_versions_of_a_policy_are_two_cells_and_other_policies_stay(monkeypatch):
    before = cell("policy=caote_snapkv").id, cell("policy=tova").id
    edited(monkeypatch, "policies/caote.py")
    assert cell("policy=caote_snapkv").id != before[0]
    assert cell("policy=tova").id == before[1]


def test_every_module_of_policies_that_the_engine_uses_is_part_of_every_cell():
    engine = sorted((source_code.ROOT / "harness/engine").rglob("*.py"))
    modules = {".".join(file.relative_to(source_code.ROOT).with_suffix("").parts) for file in engine}
    used = {name for module in modules for name in source_code.imported_modules(module.removesuffix(".__init__"))}
    files = {f"{name.replace('.', '/')}.py" for name in used if name.startswith("policies.")}
    assert files
    assert files <= set(cell("policy=window").code["policy"])


def test_a_model_that_is_measured_again_is_the_same_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = model_files.model_version(str(tmp_path), None)
    for dense in ("1.0", "0.9"):
        (tmp_path / "numbers.json").write_text(dense)
        identity.hash_files.cache_clear()
        assert model_files.model_version(str(tmp_path), None) == before


def test_other_weights_in_the_same_folder_are_another_model(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    before = model_files.model_version(str(tmp_path), None)
    identity.hash_files.cache_clear()
    weights.write_bytes(b"two")
    assert model_files.model_version(str(tmp_path), None) != before


def test_large_weights_of_the_same_size_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "WHOLE_FILE_LIMIT", 1000)
    found = set()
    for name, fill in (("a", b"\0"), ("b", b"\1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(fill * 10**6)
        found.add(identity.hash_files((tmp_path / name / "model.safetensors",)))
    assert len(found) == 2


def test_a_branch_of_the_hub_is_named_by_the_commit_that_lies_here(tmp_path, monkeypatch):
    snapshot = tmp_path / "snapshots" / "0123abcd" / "config.json"
    monkeypatch.setattr(model_files, "try_to_load_from_cache", lambda *_, **__: str(snapshot))
    assert model_files.model_version("org/model", None) == {"hub": "org/model", "revision": "0123abcd"}
    monkeypatch.setattr(model_files, "try_to_load_from_cache", lambda *_, **__: None)
    assert model_files.model_version("org/model", "v2") == {"hub": "org/model", "revision": "v2"}
