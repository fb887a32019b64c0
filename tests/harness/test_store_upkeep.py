"""`python -m harness store`: what it says of cells, what it removes, what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pandas as pd
import pytest
from harness_stores import description, files, flip_a_bit, opened, row

import tasks
from harness.cli.store import main
from harness.config import identity, source_code
from harness.errors import UserError
from harness.store import cell_folders, maintenance
from harness.store.cell_folders import Lease
from harness.store.loading import load_rows
from harness.store.maintenance import statuses
from harness.store.store import Store

SELECTION = "policies/selection.py"


def recorded(code: str, **more) -> dict:
    """A cell computed with this version of a file of ours."""
    files = {"policy": {SELECTION: code}}
    config = {"format": identity.IDENTITY_FORMAT, "code": {"policy": identity.hash_data(files["policy"])}}
    return description(sources=files, config=config, **more)


@pytest.fixture
def now() -> dict:
    return recorded(source_code.hash_code(source_code.ROOT / SELECTION), created="2026-02-02")


def states(store: Store) -> dict[str, str]:
    return {cell.cell_id: cell.state for cell in statuses(store)[0]}


def test_cells_are_done_open_running_invalid_or_damaged(tmp_path):
    names = ("done", "open", "running", "abandoned", "invalid", "damaged")
    store, ids = opened(tmp_path, *(description(name) for name in names), wanted=2)
    done, open_, running, abandoned, invalid, damaged = ids
    for cell in ids:
        store.append(cell, [row("a", invalid="more than its budget" if cell == invalid else "")])
    store.append(done, [row("b")])
    for cell, age in ((running, 0), (abandoned, 100)):
        lease = Lease("w1", "here", 1, time.time() - age, seconds=60)
        cell_folders.write_lease(store.root / cell / "lease-all.json", lease)
        assert cell_folders.leases_of_cell(store.root / cell) == [lease]
    (store.root / damaged / "cell.json").write_text("{")
    assert states(store) == {
        done: "done", open_: "open", running: "running", abandoned: "open", invalid: "invalid", damaged: "damaged",
    }  # fmt: skip


def test_a_lease_that_is_no_lease_is_nobodys(tmp_path):
    store, (cell,) = opened(tmp_path, description(), wanted=1)
    (store.root / cell / "lease-all.json").write_text('{"worker": 1}')
    assert states(store) == {cell: "open"}


def test_more_samples_asked_for_later_open_a_cell_again(tmp_path):
    store, (cell,) = opened(tmp_path, description(), wanted=1)
    store.append(cell, [row("a")])
    assert states(store) == {cell: "done"}
    store.describe(cell, description(), 3)
    store.describe(cell, description(), 2)
    assert states(store) == {cell: "open"}


def test_a_cell_of_other_code_is_stale_and_says_which_file(tmp_path, now):
    store, (old, new) = opened(tmp_path, recorded("0123"), now)
    found = {cell.cell_id: cell for cell in statuses(store)[0]}
    assert (found[old].state, found[old].why) == ("stale", f"code has changed: {SELECTION}")
    assert found[new].state == "open"


def test_a_cell_of_another_format_task_version_or_data_is_stale(tmp_path):
    task = tasks.build("wikitext", data="fixture")
    now = {"version": task.version, "revision": dict(task.revision())}
    resolved = {"task": {"name": "wikitext", "data": "fixture"}}
    versions = (now, now | {"version": "0"}, now | {"revision": {"data": "0"}})
    cells = [description(config={"task": version}, resolved=resolved) for version in versions]
    store, ids = opened(tmp_path, *cells, description(config={"format": 1}))
    assert [states(store)[cell] for cell in ids] == ["open", "stale", "stale", "stale"]


def test_a_cell_of_other_weights_is_stale(tmp_path):
    (tmp_path / "model").mkdir()
    model = {"path": str(tmp_path / "model")}
    store, ids = opened(tmp_path, description(config={"model": {"content": "0"}}, resolved={"model": model}))
    assert states(store) == dict.fromkeys(ids, "stale")


def test_old_rows_never_stand_beside_new_ones_in_a_table(tmp_path, now):
    older, old = recorded("0123", created="2026-01-01"), recorded("4567", created="2026-01-02")
    store, ids = opened(tmp_path, older, old, recorded("89ab", policy="tova"))
    for cell in ids:
        store.append(cell, [row("a")])
    assert set(load_rows(tmp_path)["cell_id"]) == {ids[1], ids[2]}, "the latest, where none is present code"
    store.describe(now["cell_id"], now)
    store.append(now["cell_id"], [row("a")])
    assert set(load_rows(tmp_path)["cell_id"]) == {now["cell_id"], ids[2]}
    for extra, cells in (([], {now["cell_id"], ids[2]}), (["--stale"], {*ids, now["cell_id"]})):
        assert main(["export", f"results_dir={tmp_path}", *extra]) == 0
        for table in ("samples", "cells"):
            assert set(pd.read_parquet(tmp_path / "export" / f"{table}.parquet")["cell_id"]) == cells


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_export_writes_two_tidy_tables(tmp_path, kind, capsys):
    store, (a, b) = opened(tmp_path, description("h2o", git="abc"), description("tova"), wanted=2)
    store.append(a, [row("1", axis_depth=20), row("2", axis_depth=40)], {"wall_seconds": 1.5, "joules": None})
    store.append(a, [row("2", axis_depth=40), row("3", axis_depth=60)], {"wall_seconds": 0.5, "joules": None})
    store.append(b, [row("1", axis_depth="deep", axis_length=1.5)])
    assert main(["export", f"results_dir={tmp_path}", "--format", kind]) == 0
    samples, cells = (pd.read_csv(f) if kind == "csv" else pd.read_parquet(f) for f in capsys.readouterr().out.split())
    assert set(zip(samples["cell_id"], samples["sample_id"].astype(str), samples["axis_depth"], strict=True)) == {
        (a, "1", "20"), (a, "2", "40"), (a, "3", "60"), (b, "1", "deep"),
    }  # fmt: skip
    assert samples.loc[samples["cell_id"] == b, "axis_length"].tolist() == [1.5]
    one = cells.set_index("cell_id").loc[a]
    assert (one["state"], one["samples"], one["wanted"], one["parts"], one["git"]) == ("done", 3, 2, 2, "abc")
    assert one["wall_seconds"] == 2.0
    assert pd.isna(one["joules"])


def test_packed_rows_are_the_rows_and_can_be_read_without_their_store(tmp_path, capsys):
    store, (a, b) = opened(tmp_path, description("h2o", git="abc"), description("tova"), wanted=2)
    store.append(a, [row("2", axis_depth=40), row("1", axis_depth=20)])
    store.append(b, [row("1", axis_depth="deep", axis_length=1.5), row("1", metric="accuracy")])
    assert main(["pack", f"results_dir={tmp_path}", "--to", str(tmp_path / "packed")]) == 0
    packed = tmp_path / "packed" / "rows.parquet"
    assert capsys.readouterr().out.split() == [str(packed)]
    order = ["cell_id", "sample_id"]  # the task's headline metric, which is the first of a sample, stays it
    pd.testing.assert_frame_equal(
        load_rows(tmp_path / "packed"), load_rows(tmp_path).sort_values(order, ignore_index=True), check_dtype=False
    )
    content = packed.read_bytes()
    main(["pack", f"results_dir={tmp_path}", "--to", str(tmp_path / "packed")])
    assert packed.read_bytes() == content
    packed.write_bytes(content[:-20])
    with pytest.raises(UserError, match="cannot be read"):
        load_rows(tmp_path / "packed")


def test_rows_of_another_folder_are_packed_beside_and_give_way_where_both_have_a_cell(tmp_path, capsys):
    here, (a, b) = opened(tmp_path / "here", description("h2o", git="abc"), description("tova"), wanted=1)
    here.append(a, [row("1")])
    here.append(b, [row("1")])
    there, (same, other) = opened(tmp_path / "there", description("h2o", git="old"), description("sink"), wanted=1)
    assert same == a
    there.append(same, [row("1")])
    there.append(other, [row("1")])
    words = [
        "pack",
        f"results_dir={tmp_path / 'here'}",
        "--beside",
        str(tmp_path / "there"),
        "--to",
        str(tmp_path / "both"),
    ]
    assert main(words) == 0
    both = load_rows(tmp_path / "both").set_index("cell_id")
    assert set(both.index) == {a, b, other}
    assert both.loc[a, "git"] == "abc"


def test_texts_that_are_not_ones_own_to_publish_stay_out_of_a_packed_file(tmp_path, capsys):
    store, (qasper, news) = opened(tmp_path, description(task="qasper"), description("tova", task="news"), wanted=1)
    for cell in (qasper, news):
        store.append(cell, [row("1", prediction="a summary", reference="theirs")])
    words = ["pack", f"results_dir={tmp_path}", "--to", str(tmp_path / "packed"), "--without-texts"]
    assert main([*words, "news"]) == 0
    kept, packed = (load_rows(place).set_index("cell_id") for place in (tmp_path, tmp_path / "packed"))
    texts = ["prediction", "reference"]
    assert kept.loc[news, texts].tolist() == ["a summary", "theirs"]
    assert (packed.loc[news, texts] == "").all()
    assert packed.loc[qasper, texts].equals(kept.loc[qasper, texts])
    assert packed.loc[news, "value"] == kept.loc[news, "value"]
    assert main([*words, "new"]) == 2
    assert "There are no rows of a task 'new'. Did you mean news?" in capsys.readouterr().err


def test_export_says_where_there_is_nothing(tmp_path, capsys):
    opened(tmp_path, description())
    assert main(["export", f"results_dir={tmp_path}"]) == 2
    assert "There are no rows" in capsys.readouterr().err
    assert main(["status", f"results_dir={tmp_path / 'nowhere'}"]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_flipped_bit_is_found_and_only_its_samples_are_missing_after_repair(tmp_path, capsys):
    store, (cell,) = opened(tmp_path, description())
    for sample in "abc":
        store.append(cell, [row(sample)])
    store.remember()
    part = files(store, cell)[1]
    (lost,) = pd.read_parquet(part)["sample_id"]
    flip_a_bit(part)
    arguments = ["verify", f"results_dir={tmp_path}"]
    assert main(arguments) == 1
    assert part.name in capsys.readouterr().out
    assert main([*arguments, "--repair"]) == 0
    assert main(arguments) == 0
    assert Store(store.root).finished(cell) == {"a", "b", "c"} - {lost}
    assert len(load_rows(tmp_path)) == 2
    assert (store.root / maintenance.QUARANTINE / cell / part.name).exists(), "put aside, not thrown away"


def test_every_bit_of_a_small_part_counts(tmp_path):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a")])
    (part,) = files(store, cell)
    whole = part.read_bytes()
    for place in range(0, len(whole), 97):
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert [finding.file for finding in maintenance.find_damage(store)] == [part]


def test_a_truncated_part_a_foreign_row_and_a_missing_column_are_found(tmp_path):
    store, (a, b) = opened(tmp_path, description("h2o"), description("tova"))
    store.append(a, [row("1")])
    (part,) = files(store, a)
    (store.root / b / part.name).write_bytes(part.read_bytes())
    part.write_bytes(part.read_bytes()[:-10])
    store.append(a, [{"sample_id": "2", "metric": "m"}])
    store.append(a, [row("3"), row("3")])
    store.append(a, [row("4", value="high")])
    whys = sorted(finding.why for finding in maintenance.find_damage(store))
    assert whys == [
        "it has a sample and metric twice", "it has rows of another cell", "it lacks the column invalid",
        "its column value holds string", "its content does not have the checksum in its name",
    ]  # fmt: skip


def test_a_changed_description_is_found_and_written_again_by_the_next_run(tmp_path):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a")])
    file = store.root / cell / "cell.json"
    file.write_text(file.read_text().replace('"sink"', '"tova"'))
    assert main(["verify", f"results_dir={tmp_path}", "--repair"]) == 0
    assert not file.exists()
    store.describe(cell, description())
    assert list(load_rows(tmp_path)["sample_id"]) == ["a"]


def test_gc_removes_what_dead_writers_left_and_nothing_of_living_ones(tmp_path, capsys):
    store, (cell,) = opened(tmp_path, description())
    store.append(cell, [row("a")])
    gone = subprocess.Popen(["true"])
    gone.wait()
    host = os.uname().nodename.replace(".", "-")
    dead, alive, away = (
        store.root / cell / f".part-1.parquet.{where}.{pid}.abcd.tmp"
        for where, pid in ((host, gone.pid), (host, os.getpid()), ("elsewhere", 1))
    )
    for file in (dead, alive, away):
        file.touch()
    flip_a_bit(files(store, cell)[0])
    assert main(["gc", f"results_dir={tmp_path}"]) == 0
    assert [file.exists() for file in (dead, alive, away)] == [False, True, True]
    os.utime(away, (0, 0))
    main(["gc", f"results_dir={tmp_path}"])
    assert not away.exists()
    assert Store(store.root).finished(cell) == set(), "the unreadable part is in quarantine"
    assert "quarantine" in capsys.readouterr().out


def test_gc_removes_stale_cells_only_when_asked_and_never_one_in_work(tmp_path, now):
    store, (old, worked_on, new) = opened(tmp_path, recorded("0123"), recorded("4567"), now)
    lease = Lease("w1", "here", 1, time.time(), seconds=60)
    cell_folders.write_lease(store.root / worked_on / "lease-all.json", lease)
    main(["gc", f"results_dir={tmp_path}"])
    assert set(store.cells()) == {old, worked_on, new}
    main(["gc", "--stale", f"results_dir={tmp_path}"])
    assert set(store.cells()) == {worked_on, new}


def test_status_counts_by_every_axis_and_rebuild_makes_the_manifest(tmp_path, capsys):
    store, (cell, _) = opened(tmp_path, description("h2o"), description("tova"), wanted=1)
    store.append(cell, [row("a")])
    assert main(["status", f"results_dir={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert all(f"Cells by {axis}" in printed for axis in ("model", "task", "policy", "budget"))
    assert "2 cells, 1 samples, 1 parts" in printed
    for manifest in store.root.glob("manifest-*.json"):
        manifest.write_text("broken")
    assert main(["rebuild", f"results_dir={tmp_path}"]) == 0
    assert Store(store.root).finished(cell) == {"a"}


def test_status_needs_no_torch(tmp_path):
    opened(tmp_path, description())
    code = (
        "import sys; from harness.cli.store import main; "
        f"main(['status', {f'results_dir={tmp_path}'!r}]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
