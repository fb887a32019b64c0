"""Fetched data are the data set, whole, or not there at all; what was refused is told in a sentence."""

from __future__ import annotations

import gzip
import json
import re
import sys
import types

import pytest
from hub_rows import lines, rows_of
from huggingface_hub.errors import HTTPError

from scripts import fetch_data
from scripts.fetching.data_checks import count
from tasks.data import CATALOGUE
from tasks.data.tables import FIXTURES, table

LONGBENCH = [name for name in CATALOGUE if name.startswith("longbench/")]


@pytest.fixture
def hub(monkeypatch):
    """A hub with one repository: its rows, or an error for each revision in turn."""

    def holding(*answers):
        asked, left = [], list(answers)

        def load_dataset(repository, config, *, split, revision):
            asked.append((repository, config, split, revision))
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def dataset_info(_, repository, *, revision):
            return types.SimpleNamespace(sha=f"commit-of-{revision}")

        monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
        return asked

    return holding


SCRIPT = RuntimeError("Dataset scripts are no longer supported, but found xsum.py")


def articles(number):
    return [{"document": "Text.", "summary": "Short.", "id": str(index), "extra": "é"} for index in range(number)]


def test_other_data_sets_are_loaded_at_a_commit_that_is_written_down(command, hub, monkeypatch, tmp_path):
    asked = hub([{**dict(table("medqa/test", "fixture").rows[0]), "id": str(index)} for index in range(1273)])
    assert command("medqa", "--from", "hub")[0] == 0
    assert asked == [("GBaker/MedQA-USMLE-4-options-hf", None, "test", "commit-of-None")]
    assert len(table("medqa/test").rows) == 1273
    assert json.loads((tmp_path / "data/PROVENANCE.json").read_text())["medqa/test"]["revision"] == "commit-of-None"


def test_what_has_a_loading_script_is_read_from_the_hubs_own_export(command, hub):
    asked = hub(SCRIPT, [dict(table("booksum/test", "fixture").rows[0])])
    assert command("booksum", "--from", "hub")[0] == 0
    assert [revision for *_, revision in asked] == ["commit-of-None", "commit-of-refs/convert/parquet"]


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ([SCRIPT, SCRIPT], r"kmfoda/booksum has a loading script and no export: load it with 'datasets<4'"),
        (
            [ValueError("BuilderConfig 'x' not found.\nAvailable: y")],
            r"kmfoda/booksum cannot be read for booksum/test: BuilderConfig",
        ),
        ([ConnectionError("no")], r"kmfoda/booksum cannot be fetched \(ConnectionError\): get it from https"),
        ([HTTPError("no")], r"kmfoda/booksum cannot be fetched \(HTTPError\): get it from https"),
        ([[{"chapter": "Text."}]], r"kmfoda/booksum, row 1 has no column 'book_id'"),
    ],
)
def test_a_repository_that_does_not_answer_as_expected_is_told_in_a_sentence(answers, sentence, command, hub, tmp_path):
    hub(*answers)
    code, _, err = command("booksum", "--from", "hub")
    assert code == 2
    assert re.match(sentence, err)
    assert err.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("split", "number"), [("validation", 11332), ("test", 11334)])
def test_each_split_of_xsum_is_a_data_set_of_its_own(split, number, command, hub, tmp_path):
    asked = hub(articles(number))
    assert command(f"xsum/{split}", "--from", "hub")[0] == 0
    assert asked == [("EdinburghNLP/xsum", None, split, "commit-of-refs/convert/parquet")]
    assert [file.name for file in (tmp_path / "data/xsum").iterdir()] == [f"{split}.jsonl"]
    assert json.loads((tmp_path / "data/PROVENANCE.json").read_text())[f"xsum/{split}"]["split"] == split


def test_a_folder_with_one_split_of_xsum_is_not_taken_for_the_other(command, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/test.jsonl").write_bytes(lines(articles(11334)))
    code, out, err = command("xsum/validation", "--from", "mine")
    assert (code, out) == (2, "")
    assert err == (
        "mine does not hold xsum/validation (xsum/validation.jsonl or validation.jsonl, or the same with .gz), "
        "but xsum/test: fetch that by its name.\n"
    )
    assert not (tmp_path / "data").exists()
    code, out, _ = command("xsum/test", "--from", "mine")
    assert (code, "data/xsum/test.jsonl: 11334 rows" in out) == (0, True)


def test_a_mirror_is_taken_only_if_it_is_the_benchmark(command, hub):
    asked = hub(rows_of("qasper", 200), [{**row, "answer_prefix": "A:"} for row in rows_of("qasper", 200)])
    assert command("longbench/qasper", "--from", "hub:somebody/LongBench")[0] == 0
    assert asked[0][:3] == ("somebody/LongBench", "qasper", "test")
    code, _, err = command("longbench/qasper", "--from", "hub:somebody/LongBench")
    assert code == 2
    assert "somebody/LongBench, row 1 has a column 'answer_prefix'" in err


def test_a_group_from_a_folder_brings_what_is_there_and_names_what_is_not(command, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/nouns.jsonl.gz").write_bytes(gzip.compress(lines([{"word": f"w{i}"} for i in range(6782)])))
    (tmp_path / "mine/verbs.jsonl").write_bytes(lines([{"word": "go"}]))
    code, out, err = command("wonderwords", "--from", "mine")
    assert code == 2
    assert "nouns.jsonl: 6782 rows" in out
    assert "mine does not hold wonderwords/adjectives (wonderwords/adjectives.jsonl or adjectives.jsonl" in err
    assert "mine/verbs.jsonl holds 1 rows, but wonderwords/verbs has 1042" in err
    assert err.count("\n") == 2
    assert len(table("wonderwords/nouns").rows) == 6782


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["longbenhc", "--from", "hub"], "There is no data set or group 'longbenhc'. Did you mean longbench"),
        (["xsum", "--from", "nowhere"], "--from nowhere is no folder"),
        (["xsum"], "Say what to fetch, and --from where"),
        (["--from", "hub"], "Say what to fetch, and --from where"),
        (
            ["medqa_free", "--from", "hub"],
            "medqa_free/test is not fetched from the hub: get it from a file of your own",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(words, sentence, command):
    code, _, err = command(*words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


def test_the_list_names_every_data_set_and_where_it_stands(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/xsum").mkdir(parents=True)
    (tmp_path / "data/xsum/validation.jsonl").touch()
    fetch_data.main(["--list"])
    lines_of = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert lines_of.keys() == CATALOGUE.keys()
    assert "11332 rows  fetched" in lines_of["xsum/validation"]
    assert "1319 rows  carried" in lines_of["gsm8k/test"]
    assert "200 rows  -" in lines_of["longbench/qasper"]


@pytest.mark.parametrize("name", LONGBENCH)
def test_the_fixture_follows_the_rule_of_length_that_is_checked(name):
    for row in table(name, "fixture").rows:
        assert count(row) == row["length"], (FIXTURES, name)


def test_without_the_package_datasets_the_sentence_says_so(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    code, _, err = command("booksum", "--from", "hub")
    assert (code, err) == (2, "The package datasets is not installed: 'pip install datasets'.\n")
