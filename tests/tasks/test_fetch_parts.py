"""A part of a data set, or the file of one under any name, is taken where that is asked for, and never in silence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.data import CATALOGUE
from tasks.data.tables import table

NAME = "xsum/test"


@pytest.fixture
def file(tmp_path) -> Path:
    """Three rows of XSum's test split under a name of the user's own."""
    first = dict(table(NAME, "fixture").rows[0])
    rows = [{**first, "document": f"{first['document']} {number}"} for number in range(3)]
    made = tmp_path / "first_three.jsonl"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def test_a_part_is_refused_with_the_word_that_accepts_it_and_then_accepted(file, command):
    code, _, problem = command(NAME, "--from", str(file))
    assert code == 2
    assert f"holds 3 rows, but {NAME} has {CATALOGUE[NAME].rows}" in problem
    assert problem.rstrip().endswith("add --part.")
    assert not Path("data").exists()

    code, done, problem = command(NAME, "--from", str(file), "--part")
    assert (code, problem) == (0, "")
    assert f"3 rows of {CATALOGUE[NAME].rows}" in done
    assert len(table(NAME).rows) == 3
    assert json.loads(Path("data/PROVENANCE.json").read_text())[NAME]["rows"] == 3


def test_more_rows_than_there_are_is_another_version_with_and_without_part(file, command, monkeypatch):
    monkeypatch.setitem(CATALOGUE, NAME, replace(CATALOGUE[NAME], rows=2))
    code, _, problem = command(NAME, "--from", str(file), "--part")
    assert code == 2
    assert "another version of it" in problem


def test_one_file_is_one_data_set(file, command):
    code, _, problem = command("xsum", "--from", str(file), "--part")
    assert code == 2
    assert "is one file, and 2 data sets are asked for" in problem
