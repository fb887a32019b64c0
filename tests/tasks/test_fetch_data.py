"""Fetched data are the data set, whole, or not there at all; what was refused is told in a sentence."""

import gzip
import hashlib
import json
import re
import sys
import types
import zipfile
from pathlib import Path

import pytest
from huggingface_hub.errors import HTTPError

from scripts import fetch_data
from scripts.fetching.data_checks import count
from tasks.data import CATALOGUE
from tasks.data.tables import FIXTURES, table

LONGBENCH = [name for name in CATALOGUE if name.startswith("longbench/")]


def rows_of(name, number):
    """As many rows as asked, with ids of their own, after the fixture's first one."""
    first = dict(table(f"longbench/{name}", "fixture").rows[0])
    return [{**first, "_id": f"{name}-{index}"} for index in range(number)]


def lines(rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def archive(file: Path, members, padding=110_000_000) -> Path:
    """A zip of LongBench's size: the padding before it is a hole in the file and costs no disk."""
    with file.open("wb") as raw:
        raw.seek(padding)
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in members.items():
                zipped.writestr(f"data/{name}.jsonl", data)
    return file


@pytest.fixture
def members():
    return {name: lines(rows_of(name, CATALOGUE[f"longbench/{name}"].rows)) for name in ("qasper", "multi_news")}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def hub_zip(monkeypatch):
    """Lets the hub answer with this file; returns what it was asked for."""
    asked = []

    def answer_with(file):
        def download(repository, name, *, repo_type, revision):
            asked.append((repository, name, repo_type, revision))
            return str(file)

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        return asked

    return answer_with


def test_longbench_comes_from_the_archive_of_the_pinned_revision(command, hub_zip, members, tmp_path):
    asked = hub_zip(archive(tmp_path / "data.zip", members))
    code, out, err = command("longbench/qasper", "longbench/multi_news", "--from", "hub")
    assert (code, err) == (0, "")
    assert asked == [("THUDM/LongBench", "data.zip", "dataset", "f72191f71cd6fcd0da8a54f0915078efda579449")]
    assert "data/longbench/qasper.jsonl: 200 rows" in out
    assert (tmp_path / "data/longbench/qasper.jsonl").read_bytes() == members["qasper"]
    assert table("longbench/qasper").kind == "folder"
    written = json.loads((tmp_path / "data/PROVENANCE.json").read_text())
    assert written.keys() == {"longbench/qasper", "longbench/multi_news"}
    assert written["longbench/qasper"] == {
        "repository": "THUDM/LongBench",
        "revision": "f72191f71cd6fcd0da8a54f0915078efda579449",
        "file": "data.zip",
        "rows": 200,
        "sha256": hashlib.sha256(members["qasper"]).hexdigest(),
        "licence": CATALOGUE["longbench/qasper"].licence,
    }


def test_a_folder_may_hold_the_archive(command, members, tmp_path):
    (tmp_path / "mine").mkdir()
    archive(tmp_path / "mine/data.zip", members)
    assert command("longbench/qasper", "--from", "mine", "--into", "there")[0] == 0
    assert (tmp_path / "there/longbench/qasper.jsonl").is_file()


def truncated(file, members):
    archive(file, members)
    with file.open("r+b") as raw:
        raw.truncate(110_000_050)


def broken_inside(file, members):
    archive(file, members)
    with file.open("r+b") as raw:
        raw.seek(110_000_200)
        raw.write(b"broken" * 20)


def without(name):
    return lambda file, members: archive(file, {key: data for key, data in members.items() if key != name})


def small(file, members):
    archive(file, members, padding=65_000_000)


def not_utf8(file, members):
    archive(file, members | {"qasper": members["qasper"].replace(b"Do the", b"Do \xe9 the", 1)})


def short(file, members):
    archive(file, members | {"qasper": lines(rows_of("qasper", 199))})


def empty_context(file, members):
    rows = rows_of("qasper", 200)
    archive(file, members | {"qasper": lines([*rows[:7], {**rows[7], "context": ""}, *rows[8:]])})


def cut_context(file, members):
    rows = rows_of("qasper", 200)
    archive(file, members | {"qasper": lines([{**rows[0], "context": "A few words."}, *rows[1:]])})


def rewritten(file, members):
    rows = [{**row, "question": "", "answer_prefix": "Answer: "} for row in rows_of("qasper", 200)]
    archive(file, members | {"qasper": lines(rows)})


ARCHIVES = {
    "of July 2023, by size": (small, r"data.zip is an old version of THUDM/LongBench with other samples \(it has 650"),
    "of July 2023, by content": (without("multi_news"), r"old version.*\(it has no multi_news\.jsonl\)"),
    "cut off": (truncated, r"data\.zip is damaged or cut off: it cannot be read as zip\. Fetch it again"),
    "broken inside": (broken_inside, r"data\.zip is damaged or cut off"),
    "without the task": (without("qasper"), r"data\.zip holds no qasper\.jsonl"),
    "not UTF-8": (not_utf8, r"data\.zip/qasper\.jsonl, row 1 is not UTF-8"),
    "a row short": (short, r"data\.zip/qasper\.jsonl holds 199 rows, but longbench/qasper has 200"),
    "empty context": (empty_context, r"qasper\.jsonl, row 8: column 'context' must be a text that is not empty"),
    "cut context": (
        cut_context,
        r"qasper\.jsonl, row 1 says length 84, but its texts have 10: it was cut or rewritten",
    ),
    "rewritten": (rewritten, r"qasper\.jsonl, row 1 has a column 'answer_prefix': this is a rewritten copy"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_that_is_not_the_benchmark_is_refused_and_nothing_is_written(
    case, command, hub_zip, members, tmp_path
):
    make, sentence = ARCHIVES[case]
    make(tmp_path / "data.zip", members)
    hub_zip(tmp_path / "data.zip")
    code, _, err = command("longbench/qasper", "--from", "hub")
    assert code == 2
    assert re.search(sentence, err)
    assert err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_without_a_network_one_sentence_says_what_to_do(command, monkeypatch, tmp_path):
    def unreachable(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    code, _, err = command("longbench", "--from", "hub")
    assert code == 2
    assert re.fullmatch(
        r"THUDM/LongBench cannot be fetched \(OSError\): download data\.zip of revision f72191f\w+ from https://\S+ "
        r"where there is a network, and say --from <its folder>\.\n",
        err,
    )
    assert not (tmp_path / "data").exists()


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


def test_an_interrupted_write_leaves_what_was_there(command, hub_zip, members, tmp_path, monkeypatch):
    hub_zip(archive(tmp_path / "data.zip", members))
    there = tmp_path / "data/longbench/qasper.jsonl"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"what was there")

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    code, _, err = command("longbench/qasper", "--from", "hub")
    assert (code, "data cannot be written to (No space left on device)" in err) == (2, True)
    monkeypatch.undo()
    assert there.read_bytes() == b"what was there"


def test_the_list_names_every_data_set_and_where_it_stands(capsys, tmp_path):
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
