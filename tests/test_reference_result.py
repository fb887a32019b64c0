"""The committed result on both of our models: its tables follow from its rows, file by file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from harness.config.policy_config import preset
from harness.papers import report_items
from harness.papers.figures.figure_index import FigureSlot
from harness.papers.paper_report import write_reports
from harness.papers.published import OURS, PAPERS
from harness.store.loading import load_rows

REFERENCE = Path(__file__).parent.parent / "results" / "reference"
BOARD = Path(__file__).parent.parent / "results" / "leaderboard"
TABLES = (".md", ".tex", ".csv")


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory) -> Path:
    """The reports without their figures, which are not compared (tests/figures) and take half of the time."""
    folder = tmp_path_factory.mktemp("rebuilt")
    not_drawn = FigureSlot(None, "Not drawn here.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_items, "figure_or_reason", lambda *figure: not_drawn)
        patch.setattr(report_items, "our_figure_or_reason", lambda *figure: not_drawn)
        written = list(write_reports([*PAPERS, OURS], REFERENCE, None, folder))
    assert len(written) == len(PAPERS) + 1
    return folder


@pytest.mark.parametrize("paper", [*PAPERS, OURS])
def test_every_table_and_verdict_is_what_its_rows_give(paper, rebuilt):
    committed, again = (
        {
            file.relative_to(folder).as_posix(): file.read_text()
            for file in (folder / paper).rglob("*")
            if file.suffix in TABLES
        }
        for folder in (REFERENCE / "reports", rebuilt)
    )
    assert committed.keys() == again.keys()
    assert [name for name in committed if committed[name] != again[name]] == []
    assert len(committed) > 3


@pytest.mark.parametrize("paper", [*PAPERS, OURS])
def test_the_page_is_whole_and_speaks_of_the_testbed(paper):
    page = (REFERENCE / "reports" / paper / "index.html").read_text()
    assert "testbed" in page
    assert not re.search(r'(?:src|href)="https?:', page)


def test_its_rows_are_sound_and_say_where_they_come_from():
    rows = load_rows(REFERENCE)
    assert set(rows["model"]) == {"testbed", "smollm2-135m"}
    assert rows["hardware"].ne("").all()
    assert not rows.duplicated(["cell_id", "sample_id", "metric"]).any()
    said = (REFERENCE / "README.md").read_text()
    assert "make reproduce" in said
    assert str(rows["cell_id"].nunique()) in said.replace(",", "")


def test_the_boards_are_what_their_rows_and_times_give(tmp_path):
    """Of both models; every policy of the experiment has its line, or is named among those without a place."""
    rows = load_rows(BOARD)
    assert not rows["invalid"].any()
    said = (BOARD / "README.md").read_text().replace(",", "")
    assert f"{rows['cell_id'].nunique()} cells" in said
    assert f"{len(rows.drop_duplicates(['cell_id', 'sample_id']))} samples" in said
    (page, _), *_ = write_reports([OURS], BOARD, None, tmp_path)
    boards = sorted(page.parent.glob("*/leaderboard_*.md"))
    assert len(boards) == 15  # five tasks at three sizes
    asked = yaml.safe_load((BOARD.parents[1] / "conf/exp/leaderboard.yaml").read_text())["grids"]["leaderboard"]["mini"]
    for board in boards:
        text = board.read_text()
        assert text == (BOARD / "reports" / board.relative_to(tmp_path)).read_text()
        if board.stem.endswith("-niah"):
            assert "prompt, ms/token" in text
            names = {preset(policy)["name"] for line in asked for policy in line["policy"]}
            assert [name for name in names if f"| {name} |" not in text and f" {name} (" not in text] == []
