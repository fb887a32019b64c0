"""Data sets are found where they are said to be, come checked, and what is wrong with them is named by file and row."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from tasks import TaskError
from tasks.data import CATALOGUE, revision_of, tables
from tasks.data.tables import CARRIED, FIXTURES, table

ROW = {"question": "How many?", "answer": "#### 3"}


def lines(*rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def put(file: Path, data: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working directory without ``data/``."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_data_set_has_a_fixture_of_its_schema(name):
    fixture = table(name, "fixture")
    assert fixture.kind == "fixture"
    assert 1 <= len(fixture.rows) <= 12
    assert fixture.file == FIXTURES / f"{name}.jsonl"


def test_carried_data_are_those_of_the_provenance_file():
    listed = re.findall(
        r"^\| (\S+\.jsonl\.gz) \| (\d+) \| (\d+) \| `(\w{64})`", (CARRIED / "PROVENANCE.md").read_text(), re.MULTILINE
    )
    assert {name for name, *_ in listed} == {file.relative_to(CARRIED).as_posix() for file in CARRIED.rglob("*.gz")}
    for name, rows, packed, digest in listed:
        read = table(name.removesuffix(".jsonl.gz"))
        content = gzip.decompress((CARRIED / name).read_bytes())
        assert (read.kind, len(read.rows), (CARRIED / name).stat().st_size) == ("carried", int(rows), int(packed))
        assert read.revision == digest[:16]
        assert hashlib.sha256(content).hexdigest() == digest


@pytest.mark.parametrize("group", ["gsm8k", "lost_in_the_middle", "medqa", "wonderwords"])
def test_licences_lie_beside_what_is_carried(group):
    assert "MIT License" in (CARRIED / group / "LICENSE").read_text()


def test_fetched_data_come_before_carried_data(tmp_path):
    put(tmp_path / "data/gsm8k/test.jsonl", lines(ROW))
    assert (table("gsm8k/test").kind, len(table("gsm8k/test").rows)) == ("folder", 1)


def test_a_file_that_changes_is_read_again(tmp_path):
    file = put(tmp_path / "data/gsm8k/test.jsonl", lines(ROW))
    first = table("gsm8k/test")
    put(file, lines(ROW, ROW))
    assert (len(first.rows), len(table("gsm8k/test").rows)) == (1, 2)


def test_however_many_data_sets_a_sweep_has_each_is_read_once_for_its_revision(tmp_path, monkeypatch):
    names = [name for name in CATALOGUE if name.startswith("longbench/")][:16]
    assert len(names) == 16
    for name in names:
        put(tmp_path / f"data/{name}.jsonl", lines(*table(name, "fixture").rows))
    read = []
    parse = tables.parsed_rows

    def counted(data, where, columns):
        read.append(where)
        return parse(data, where, columns)

    monkeypatch.setattr(tables, "parsed_rows", counted)
    first = [revision_of(name) for name in names]
    assert [revision_of(name) for name in names * 3] == first * 3
    assert sorted(read) == sorted(f"data/{name}.jsonl" for name in names)
    assert first == [table(name).revision for name in names]


def test_a_file_that_changes_has_another_revision_and_one_that_goes_is_missed(tmp_path):
    file = put(tmp_path / "data/gsm8k/test.jsonl", lines(ROW))
    first = revision_of("gsm8k/test")
    put(file, lines(ROW, ROW))
    assert revision_of("gsm8k/test") == hashlib.sha256(lines(ROW, ROW)).hexdigest()[:16] != first
    put(file, b"{")
    with pytest.raises(TaskError, match="row 1 is not JSON"):
        revision_of("gsm8k/test")
    file.unlink()
    with pytest.raises(TaskError, match="is no folder"):
        revision_of("gsm8k/test", "nowhere")
    assert revision_of("gsm8k/test") == table("gsm8k/test").revision, "the carried copy"


@pytest.mark.parametrize(
    "name", ["gsm8k/exemplars.jsonl", "exemplars.jsonl", "train_exemplars_8.jsonl", "train_exemplars_8.jsonl.gz"]
)
def test_a_folder_may_name_the_file_as_its_authors_do_and_packing_changes_no_revision(tmp_path, name):
    data = lines(ROW)
    put(tmp_path / "mine" / name, gzip.compress(data) if name.endswith(".gz") else data)
    read = table("gsm8k/exemplars", str(tmp_path / "mine"))
    assert (read.kind, read.rows) == ("folder", (ROW,))
    assert read.revision == hashlib.sha256(data).hexdigest()[:16]
    assert read.place(0).endswith(f"{name}, row 1")


def test_missing_data_are_one_sentence_with_the_command_for_all_of_a_group_the_same(tmp_path):
    command = r"fetch it with 'python -m scripts.fetch_data longbench --from hub'"
    with pytest.raises(TaskError, match=rf"^The data set longbench is not on this machine: {command}, or") as e:
        table("longbench/qasper")
    assert str(e.value).count(". ") == 0
    put(tmp_path / "data/longbench/lcc.jsonl", b"")
    with pytest.raises(TaskError, match=rf"^The data set longbench/qasper is not on this machine: {command}, or"):
        table("longbench/qasper")
    with pytest.raises(TaskError, match=r"fetch_data xsum/validation --from hub"):
        table("xsum/validation")
    with pytest.raises(TaskError, match=r"fetch_data medqa_free/test --from <folder>"):
        table("medqa_free/test")


def test_an_empty_folder_is_told_what_it_should_hold(tmp_path):
    with pytest.raises(TaskError, match=r"does not hold the data set longbench/lcc \(longbench/lcc.jsonl or lcc.jsonl"):
        table("longbench/lcc", str(tmp_path))
    with pytest.raises(TaskError, match=r"data=nowhere is no folder"):
        table("longbench/lcc", "nowhere")


def test_an_unknown_data_set_gets_the_nearest():
    with pytest.raises(TaskError, match=r"There is no data set 'longbench/qaspr'. Did you mean longbench/qasper"):
        table("longbench/qaspr")


GOOD = lines(ROW)
BAD = {
    "missing column": (GOOD + lines({"question": "How many?"}), r"row 2 has no column 'answer'"),
    "empty text": (
        GOOD + lines({**ROW, "question": " "}),
        r"row 2: column 'question' must be a text that is not empty",
    ),
    "null": (lines({**ROW, "answer": None}), r"row 1: column 'answer' must be a text that is not empty; it is empty"),
    "wrong kind": (lines({**ROW, "answer": 3}), r"row 1: column 'answer' must be a text that is not empty; it is '3'"),
    "not UTF-8": (GOOD + b'{"question": "caf\xe9", "answer": "a"}\n', r"row 2 is not UTF-8 \(byte 17\)"),
    "cut off": (GOOD + GOOD[:20], r"row 2 is not JSON; the file may be cut off"),
    "half a character": (GOOD + b'{"question": "a\\ud83d", "answer": "a"}\n', r"row 2 holds half of a surrogate pair"),
    "nested without end": (b"[" * 100_000 + b"\n", r"row 1 is not JSON"),
    "not an object": (b"[1, 2]\n", r"row 1 is no JSON object"),
    "blank line": (b"\n" + GOOD, r"row 1 is not JSON"),
    "no rows": (b"", r"is empty: it holds no rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_corrupt_data_are_named_by_file_and_row(case, tmp_path):
    data, sentence = BAD[case]
    put(tmp_path / "data/gsm8k/test.jsonl", data)
    with pytest.raises(TaskError, match=rf"^data/gsm8k/test\.jsonl(, )?.*{sentence}"):
        table("gsm8k/test")


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-30], lambda packed: b"PK" + packed, lambda packed: packed[:5]]
)
def test_a_truncated_or_foreign_gzip_is_named(damage, tmp_path):
    put(tmp_path / "data/gsm8k/test.jsonl.gz", damage(gzip.compress(lines(*[ROW] * 50))))
    with pytest.raises(TaskError, match=r"data/gsm8k/test\.jsonl\.gz is damaged or cut off"):
        table("gsm8k/test")


@pytest.mark.parametrize(
    ("name", "column", "value", "meaning"),
    [
        ("longbench/trec", "answers", [], "a list of texts"),
        ("longbench/trec", "answers", "Number", "a list of texts"),
        ("longbench/trec", "length", "12", "a whole number"),
        ("longbench/trec", "all_classes", "Number", "null or a list of class names"),
        ("lost_in_the_middle/kv_75", "ordered_kv_records", [["a"]], "a list of pairs"),
        ("lost_in_the_middle/kv_75", "ordered_kv_records", [3], "a list of pairs"),
        ("lost_in_the_middle/10_documents_gold_at_4", "ctxs", ["text"], "a list of passages"),
        ("lost_in_the_middle/10_documents_gold_at_4", "ctxs", [{"title": "x"}], "a list of passages"),
    ],
)
def test_columns_of_other_kinds_are_checked_too(tmp_path, name, column, value, meaning):
    row = dict(table(name, "fixture").rows[0])
    put(tmp_path / f"data/{name}.jsonl", lines({**row, column: value}))
    with pytest.raises(TaskError, match=rf"row 1: column '{column}' must be {meaning}"):
        table(name)
