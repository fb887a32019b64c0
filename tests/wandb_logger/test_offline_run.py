"""A sweep with logger=wandb leaves an offline run that holds what docs/wandb.md promises."""

from __future__ import annotations

import sys

import pytest

from harness.cli import main
from harness.report.rows import checked_rows
from harness.report.summary import summary_table
from harness.store.loading import load_rows

pytest.importorskip("wandb")
from wandb_logger.offline_run import OfflineRun

SMALL = [
    "task.lengths=[192,256]",
    "task.repeats=1",
    "task.depths=[20,80]",
    "block_size=32",
    "references=[dense,random]",
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a sweep of two policies and two budgets on two tasks, and what it said."""
    folder = tmp_path_factory.mktemp("sweep")
    words = ["-m", "policy=sink,keydiff", "budget=48,96", *SMALL, "logger=wandb", "logger.wait=60", "name=mini"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["harness", *words, f"results_dir={folder}"])
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody answers: offline asks nobody
        main.main()
    return folder


@pytest.fixture(scope="module")
def run(swept):
    (folder,) = (swept / "wandb").glob("offline-run-*")
    return OfflineRun(folder)


def test_a_run_is_named_after_its_model_task_and_regime(run):
    assert (run.name, run.project, run.group) == ("testbed · niah · blocked 32", "kvreplica", "mini")
    assert run.exit_code == 0


def test_the_configuration_of_every_cell_is_in_it_resolved(run, swept):
    cells = load_rows(swept).drop_duplicates("cell_id").set_index("cell_id")
    assert set(run.config["cells"]) == set(cells.index)
    for cell_id, own in run.config["cells"].items():
        assert own["policy"]["name"].partition("/")[0] == cells.loc[cell_id, "policy"]
    assert run.config["group"]["block_size"] == run.config["shared"]["block_size"] == 32
    assert run.config["shared"]["task"]["lengths"] == [192, 256]


def test_progress_ends_with_all_samples(run, swept):
    steps = [step for step in run.history if "progress/samples" in step]
    rows = load_rows(swept)
    assert steps[-1]["progress/samples"] == len(rows)
    assert steps[-1]["progress/tokens"] >= rows["prompt_tokens"].sum()
    assert steps[-1]["progress/tokens_per_second"] > 0
    assert steps[-1]["progress/memory_gib"] > 0


def test_the_result_table_is_the_reports_as_panel_and_as_artifact(run, swept):
    expected = summary_table(load_rows(swept)).set_index("cell_id")
    for table in (run.table("results"), run.artifact_table("results")):
        assert {line["cell_id"] for line in table} == set(expected.index)
        for line in table:
            own = expected.loc[line["cell_id"]]
            assert (line["label"], line["budget"], line["n"]) == (own["label"], own["budget"], own["n"])
            assert [line["value"], line["low"], line["high"]] == pytest.approx([own["value"], own["low"], own["high"]])


def test_curves_have_every_policy_at_every_budget_and_dense_as_a_level(run, swept):
    summary = summary_table(load_rows(swept))
    points = {(line["lineKey"], line["step"]): line["lineVal"] for line in run.table("curves/string_match_table")}
    sparse = summary[~summary["dense"].astype(bool)]
    assert {(line["label"], float(line["budget"])) for line in sparse.to_dict("records")} == {
        key for key in points if key[0] != "dense"
    }
    for line in sparse.to_dict("records"):
        assert points[line["label"], float(line["budget"])] == pytest.approx(line["value"])
    (dense,) = summary[summary["dense"].astype(bool)]["value"]
    assert points["dense", 48.0] == points["dense", 96.0] == pytest.approx(dense)


def test_the_figure_with_intervals_is_a_page_of_its_own(run):
    page = run.text("figures/string_match")
    assert "95 % intervals" in page
    assert "<svg" in page
    for policy in ("sink", "keydiff", "dense"):
        assert policy in page


def test_heatmaps_have_a_place_for_every_length_and_depth(run, swept):
    rows = checked_rows(load_rows(swept))
    table = run.table("heatmap_table/string_match")
    assert {(line["length"], line["depth"]) for line in table} == {(n, d) for n in (192, 256) for d in (20, 80)}
    assert sum(line["n"] for line in table) == len(rows)
    keydiff = [line for line in table if (line["policy"], line["budget"]) == ("keydiff", "48")]
    own = rows[(rows["policy"] == "keydiff") & (rows["budget"] == "48")]
    for line in keydiff:
        there = own[(own["axis_length"] == line["length"]) & (own["axis_depth"] == line["depth"])]
        assert line["string_match"] == pytest.approx(there["value"].mean())
    assert run.text("heatmaps/string_match").count("<table>") == rows["cell_id"].nunique()


def test_the_list_of_runs_shows_every_cells_value(run, swept):
    for line in summary_table(load_rows(swept)).to_dict("records"):
        assert run.summary[f"string_match/{line['label']}/{line['budget']}"] == pytest.approx(line["value"])
