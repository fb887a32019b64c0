"""Whatever happened to a results folder, `verify` names it, `--repair` and the same sweep give the tables of before."""

from __future__ import annotations

import hashlib
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness_stores import description, files, opened, row
from pandas.testing import assert_frame_equal

from harness import load_rows
from harness.cli.store import main
from harness.config.cell import Cell
from harness.config.compose import checked_config, compose_config
from harness.errors import UserError
from harness.runner.progress import Progress
from harness.runner.samples import Prompts
from harness.runner.worker import run
from harness.store import maintenance, parts
from harness.store.cell_folders import DamagedCellError, read_requested
from harness.store.maintenance import statuses
from harness.store.parts import METADATA_KEY, DamagedPartError
from harness.store.store import Store

ONE_NEEDLE = ["task=niah", "task.lengths=[128]", "task.depths=[50]", "block_size=32", "budget=48", "limit=1"]


def with_name_of_content(folder, content: bytes):
    file = folder / f"part-{hashlib.sha256(content).hexdigest()}.parquet"
    file.write_bytes(content)
    return file


def written(table: pa.Table, metadata: str = "{}") -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY.decode(): metadata})
    return sink.getvalue().to_pybytes()


def swept(folder):
    """Two cells, computed where they are missing; how many samples were."""
    cells = [
        Cell.parse(checked_config(compose_config([*ONE_NEEDLE, f"policy={name}"]))) for name in ("sink", "keydiff")
    ]
    return run(cells, folder, "cpu", Prompts(), Progress(shown=False)).computed


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("computed")
    assert swept(folder) == 2
    return folder


def lose_a_description(cell):
    (cell / "cell.json").unlink()


def truncate_a_description(cell):
    (cell / "cell.json").write_bytes((cell / "cell.json").read_bytes()[:100])


def empty_a_description(cell):
    (cell / "cell.json").write_bytes(b"")


def empty_a_part(cell):
    next(cell.glob("part-*")).write_bytes(b"")


def garble_the_metadata(cell):
    (part,) = cell.glob("part-*")
    table = pq.read_table(part)
    part.unlink()
    with_name_of_content(cell, written(table, "\x00 no JSON"))


def score_seven(cell):
    (part,) = cell.glob("part-*")
    table = pq.read_table(part)
    place = table.schema.get_field_index("value")
    part.unlink()
    with_name_of_content(cell, written(table.set_column(place, "value", pa.array([7.0] * table.num_rows))))


DAMAGES = {
    lose_a_description: 0,
    truncate_a_description: 0,
    empty_a_description: 0,
    empty_a_part: 1,
    garble_the_metadata: 1,
    score_seven: 1,
}  # and the samples that have to be computed again


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_verify_names_it_and_repair_and_the_same_sweep_give_the_table_of_before(damage, computed, tmp_path, capsys):
    before = load_rows(computed)
    folder = tmp_path / "copy"
    for file in (computed / "runs").rglob("*"):
        if file.is_file():
            place = folder / file.relative_to(computed)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    cell = folder / "runs" / before["cell_id"].iloc[0]
    damage(cell)
    assert main(["verify", f"results_dir={folder}"]) == 1
    assert str(cell) in capsys.readouterr().out
    assert main(["verify", "--repair", f"results_dir={folder}"]) == 0
    assert swept(folder) == DAMAGES[damage], "nothing complete is computed twice"
    columns = [name for name in before if name not in ("created", "versions")]
    after = load_rows(folder)
    assert_frame_equal(after[columns], before[columns])
    assert main(["verify", f"results_dir={folder}"]) == 0


def test_a_number_that_no_column_holds_is_named_and_its_cell_put_aside_for_good(tmp_path, capsys):
    """Rows that an older version stored with seed=99999999999999999999 must not end in an OverflowError for ever."""
    huge = 99999999999999999999
    store, (good, poisoned) = opened(tmp_path, description(), description(seed=huge, config={"seed": huge}))
    for cell in (good, poisoned):
        store.append(cell, [row("a")])
    with pytest.raises(DamagedCellError, match=f"its seed is {huge}"):
        load_rows(tmp_path)
    assert list(load_rows(tmp_path, damaged="skip")["cell_id"]) == [good]
    assert poisoned in capsys.readouterr().out
    assert main(["verify", f"results_dir={tmp_path}", "--repair"]) == 0
    assert list(load_rows(tmp_path)["cell_id"]) == [good]


def test_a_reader_can_go_on_without_the_damaged_cells(tmp_path, capsys):
    store, (whole, broken) = opened(tmp_path, description(), description("tova"))
    for cell in (whole, broken):
        store.append(cell, [row("a")])
    files(store, broken)[0].write_bytes(b"")
    with pytest.raises(DamagedPartError, match=r"verify --repair.*damaged='skip'"):
        load_rows(tmp_path)
    assert list(load_rows(tmp_path, damaged="skip")["cell_id"]) == [whole]
    with pytest.raises(UserError, match=r"damaged=ignore is not known\. Known: raise, skip"):
        load_rows(tmp_path, damaged="ignore")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 7.0, -0.1])
def test_a_score_that_no_metric_can_have_is_damage_and_one_of_an_invalid_row_is_not(tmp_path, value):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a", value), row("b", value, invalid="more than its budget")])
    assert [finding.why for finding in maintenance.find_damage(store)] == [f"it has {value} as string_match"]


def test_a_perplexity_may_be_any_finite_number(tmp_path):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a", 7.0, metric="nll")])
    assert not list(maintenance.find_damage(store))


def test_status_sees_a_part_that_became_empty_although_the_manifest_knows_it(tmp_path):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a")])
    store.remember()
    files(store, cell)[0].write_bytes(b"")
    _, damaged = statuses(Store(store.root))
    assert [error.file for error in damaged] == files(store, cell)


def test_a_part_that_may_not_be_read_is_no_damage(tmp_path, monkeypatch):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a")])

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(parts.Path, "read_bytes", refused)
    with pytest.raises(UserError, match=r"Permission denied.*chmod u\+r") as found:
        parts.summarise_part(files(store, cell)[0])
    assert not isinstance(found.value, DamagedPartError)


def test_rows_of_a_cell_without_description_are_never_left_out_in_silence(tmp_path):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a")])
    (store.root / cell / "cell.json").unlink()
    with pytest.raises(DamagedCellError, match=r"cell\.json is missing\. Run the command that computed the cell"):
        load_rows(tmp_path)
    (damage,) = maintenance.find_damage(store)
    assert damage.why == "missing"
    store.describe(cell, json.loads(json.dumps(description())))
    assert isinstance(load_rows(tmp_path), pd.DataFrame)


@pytest.mark.parametrize("written", ["Infinity", "NaN", "-1", "2.5", "true", "[1]", '"x"', "1e999"])
def test_a_request_that_is_no_number_of_samples_is_as_if_there_were_none(written, tmp_path):
    (tmp_path / "wanted.json").write_text(f'{{"samples": {written}}}')
    assert read_requested(tmp_path) is None
