"""The notebooks run from top to bottom, and what they show was made by the cells that stand there."""

from __future__ import annotations

import json
import re

import nbformat
import pytest

from scripts.notebooks import MARK, executed, files, hash_of, kernel

FILES = files()
REMEDY = "run 'make notebooks'"


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with kernel(tmp_path_factory.mktemp("notebooks")) as started:
        yield started


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_runs_and_shows_as_many_things_as_are_stored(file, manager):
    stored, fresh = nbformat.read(file, as_version=4), executed(file, manager)
    for before, now in zip(stored.cells, fresh.cells, strict=True):
        kinds = [[output.output_type for output in cell.get("outputs", [])] for cell in (before, now)]
        assert kinds[0] == kinds[1], f"{file.name}: {REMEDY}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_stored_belongs_to_its_cells_and_names_no_place_of_this_machine(file):
    notebook = nbformat.read(file, as_version=4)
    assert notebook.metadata[MARK] == hash_of(notebook.cells), f"{file.name}: {REMEDY}"
    assert any(cell.get("outputs") for cell in notebook.cells)
    texts = re.sub(r'"image/png": "[^"]*"', "", json.dumps(notebook))
    assert not re.search(r"/(home|root|tmp|usr|work|Users)/|\.venv|\bstderr\b", texts)
    assert file.stat().st_size < 200_000


def test_there_is_one_for_each_question():
    assert [file.stem[:2] for file in FILES] == ["01", "02", "03", "04", "05", "06"]
