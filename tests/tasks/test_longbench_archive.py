"""LongBench comes from one archive: the one of the pinned revision, whole, or it is not taken."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest
from hub_rows import lines, rows_of

from tasks.data import CATALOGUE
from tasks.data.tables import table


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
