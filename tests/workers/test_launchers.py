"""Every launcher brings one sweep to its end; what it cannot do it says in one sentence."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from workers.small_sweeps import POLICIES, SAMPLES, cells, job_spec, locks_held, table, times_stored, wait_until

from harness.config.cell import Cell
from harness.config.model import ModelSpec
from harness.errors import UserError
from harness.runner import launchers
from harness.runner import plan as planning
from harness.runner.job_spec import JobSpec, WorkerSpec, run_job
from harness.runner.launchers import launch
from harness.runner.model_work import ModelWork
from harness.runner.progress import Progress
from harness.runner.prompt_encoder import PromptEncoder
from harness.runner.samples import Prompts
from harness.store.store import Store

LOCAL = {"name": "local", "workers": 2, "retries": 1}
SLURM = {"name": "slurm", "workers": 4, "cluster": "local", "parameters": {"timeout_min": 5, "slurm_partition": "gpu"}}
RAY = {"name": "ray", "workers": 1, "address": None, "gpus": 0, "cpus": 1, "retries": 1}


def launched(what: JobSpec, settings):
    return launch(what, settings, Prompts(), Progress(shown=False))


def assert_complete(done, results, uninterrupted):
    assert (done.computed, done.present) == (len(POLICIES) * SAMPLES, 0)
    assert (times_stored(results) == 1).all()
    pd.testing.assert_frame_equal(table(results), uninterrupted)


def test_local_workers_of_which_one_is_killed_complete_one_sweep(model, uninterrupted_table, tmp_path):
    def kill_the_first():
        wait_until(lambda: locks_held(tmp_path))
        os.kill(json.loads(locks_held(tmp_path)[0].read_bytes())["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first, daemon=True)
    killer.start()
    done = launched(job_spec(model, tmp_path), LOCAL)
    killer.join()
    assert_complete(done, tmp_path, uninterrupted_table)


def test_local_workers_end_with_the_command_that_started_them_even_where_it_cannot_tell_them(model, tmp_path):
    many = 400  # of each cell: more than the workers compute until they look
    what = job_spec(model, tmp_path, samples=many)
    launcher = multiprocessing.get_context("fork").Process(target=launched, args=(what, LOCAL))
    launcher.start()
    wait_until(lambda: len(locks_held(tmp_path)) == 2, 60)  # both are at work
    launcher.kill()
    launcher.join()
    logs = list((tmp_path / "logs").glob("*/worker-*.txt"))
    wait_until(lambda: all("Stopped." in log.read_text() for log in logs), 60)
    assert locks_held(tmp_path) == []
    assert times_stored(tmp_path).sum() < many * len(POLICIES)


def test_four_array_jobs_of_submitits_local_executor_complete_one_sweep(model, uninterrupted_table, tmp_path):
    pytest.importorskip("submitit")
    assert_complete(launched(job_spec(model, tmp_path), SLURM), tmp_path, uninterrupted_table)


def test_nothing_is_started_where_nothing_is_missing(model, tmp_path, monkeypatch):
    launched(job_spec(model, tmp_path, samples=1), {"name": "none"})
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a worker was started"))
    assert launched(job_spec(model, tmp_path, samples=1), LOCAL).present == len(POLICIES)


@pytest.fixture
def speeds(monkeypatch):
    """Speeds by number of workers, which stand for measured ones, and the threads that each number was tried with."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    measured: dict[int, float] = {}
    threads: dict[int, int] = {}

    def answer(workers, share, shape):
        assert shape == (32, 32, "float32")  # of the model that is swept
        threads[workers] = share
        return measured[workers]

    monkeypatch.setattr(launchers, "_layers_a_second", answer)
    monkeypatch.setattr(launchers, "physical_bytes", lambda: 2**40)
    return measured, threads


@pytest.mark.parametrize(
    ("measured", "fastest"),
    [
        ({1: 10.0, 2: 17.0, 4: 25.0, 8: 22.0}, 4),
        ({1: 10.0, 2: 8.0, 4: 0.0, 8: 0.0}, 1),
        ({1: 10.0, 2: 9.5, 4: 9.2, 8: 8.5}, 4),  # of about equal ones the most
    ],
)
def test_there_are_as_many_local_workers_as_compute_most_and_no_more(model, tmp_path, speeds, measured, fastest):
    speeds[0].update(measured)
    assert launchers.fastest_number(planned(job_spec(model, tmp_path)), 8) == fastest
    assert speeds[1] == {1: 8, 2: 4, 4: 2, 8: 1}


def test_no_number_of_local_workers_is_tried_for_which_samples_or_memory_do_not_suffice(
    model, tmp_path, speeds, monkeypatch
):
    speeds[0].update({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0})
    assert launchers.fastest_number(planned(job_spec(model, tmp_path, samples=3)), 8) == 4  # 3 of each of two cells
    monkeypatch.setattr(launchers, "physical_bytes", lambda: 10 * 2**30)  # 6 GiB may be used, 2 by each
    assert launchers.fastest_number(planned(job_spec(model, tmp_path)), 8) == 2


def test_the_number_of_local_workers_is_not_measured_where_threads_or_last_bits_are_asked_for(
    model, tmp_path, speeds, monkeypatch
):
    assert launchers.fastest_number(planned(job_spec(model, tmp_path, deterministic=True)), 8) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert launchers.fastest_number(planned(job_spec(model, tmp_path)), 8) == 1
    assert not speeds[1]


def test_the_measurement_counts_what_all_its_processes_compute_and_nothing_where_one_fails():
    assert launchers._layers_a_second(2, 1, (64, 96, "float32")) > 0
    assert launchers._layers_a_second(1, 1, (64, 96, "no type")) == 0


@pytest.mark.parametrize(("package", "settings"), [("submitit", SLURM), ("ray", RAY)])
def test_a_launcher_without_its_package_says_what_to_install(model, tmp_path, monkeypatch, package, settings):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"needs {package}: pip install -e '\.\[{settings['name']}\]'"):
        launched(job_spec(model, tmp_path), settings)


def test_workers_that_are_refused_their_work_end_the_sweep_with_their_sentence(model, tmp_path):
    what = job_spec(model, tmp_path)
    lost = JobSpec(what.cells, what.results_dir, "cuda", what.settings)
    with pytest.raises(UserError, match="device=cuda is not on this machine"):
        launched(lost, {**LOCAL, "workers": 1})


def test_workers_that_fail_with_a_traceback_do_not_look_refused(tmp_path):
    """`make reproduce` goes on after exit code 2, which says that some cells cannot be run here."""
    log = tmp_path / "worker-0.txt"
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-c", "raise IndexError('too many')"], stderr=stream)
    with pytest.raises(RuntimeError, match=r"All workers have failed, see .*worker-0.txt: IndexError: too many"):
        launchers._watch([launchers._LocalWorker(0, process, log)], tmp_path, [], retries=0)


def planned(what: JobSpec) -> JobSpec:
    """The job spec as its launcher writes it."""
    prompts = Prompts()
    return replace(what, work=tuple(ModelWork.of(plan, prompts, what.settings) for plan in what.plans(prompts)))


def test_a_job_spec_comes_back_as_it_was_written(model, tmp_path):
    what = planned(job_spec(model, tmp_path, deterministic=True))
    again = WorkerSpec.read(what.write())
    assert [list(work.cells) for work in again.work] == [[cell.id for cell in what.cells]]
    assert [work.jobs for work in again.work] == [work.jobs for work in what.work]
    assert [(work.model, work.footprint, work.sweep) for work in again.work] == [
        (work.model, work.footprint, work.sweep) for work in what.work
    ]
    assert again.settings == what.settings


def changed(file: Path, change) -> Path:
    """A job spec's file after a change of its content."""
    content = json.loads(gzip.decompress(file.read_bytes()))
    change(content["work"][0])
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    return file


def test_a_worker_whose_code_is_not_that_of_the_command_computes_nothing(model, tmp_path):
    def other_code(work):
        work["cells"] = {"0" * 16: next(iter(work["cells"].values()))}
        work["jobs"] = [["0" * 16, *job[1:]] for job in work["jobs"]]

    file = changed(planned(job_spec(model, tmp_path)).write(), other_code)
    with pytest.raises(UserError, match="Code, data or model have changed since this sweep was started"):
        run_job(str(file))
    assert Store(tmp_path / "runs").cells() == []


def test_a_changed_cell_is_found_when_a_batch_needs_it_and_its_batch_given_back(model, tmp_path):
    """Other cells are computed: their code has not changed."""
    what = planned(job_spec(model, tmp_path))
    (work,) = what.work
    last = work.jobs[-1].cell

    def other_code(written):
        written["cells"]["0" * 16] = written["cells"].pop(last)
        written["jobs"] = [["0" * 16 if job[0] == last else job[0], *job[1:]] for job in written["jobs"]]
        written["jobs"].sort(key=lambda job: job[0] == "0" * 16)

    file = changed(what.write(), other_code)
    with pytest.raises(UserError, match="Code, data or model have changed since this sweep was started"):
        run_job(str(file))
    assert "0" * 16 not in {cell for cell, _ in times_stored(tmp_path).index}
    assert locks_held(tmp_path) == []


def test_a_worker_parses_and_encodes_only_what_its_batches_need(model, uninterrupted_table, tmp_path, monkeypatch):
    launched(JobSpec(cells(model)[:1], tmp_path, "cpu", job_spec(model, tmp_path).settings), {"name": "none"})
    few = tuple(replace(cell, limit=5) for cell in cells(model))
    launched(replace(job_spec(model, tmp_path), cells=few), {"name": "none"})
    file = planned(job_spec(model, tmp_path)).write()
    parsed, encoded = [], []
    parse, encode = Cell.parse, PromptEncoder.encode
    monkeypatch.setattr(Cell, "parse", staticmethod(lambda config: parsed.append(config) or parse(config)))
    monkeypatch.setattr(PromptEncoder, "encode", lambda self, sample: encoded.append(sample.id) or encode(self, sample))
    assert run_job(str(file)) == len(set(encoded)) == len(encoded) == SAMPLES - 5
    assert [config["policy"]["name"] for config in parsed] == [cells(model)[1].policy.name]
    pd.testing.assert_frame_equal(table(tmp_path), uninterrupted_table)


def test_a_worker_of_a_finished_sweep_loads_no_model(model, tmp_path, monkeypatch):
    what = planned(job_spec(model, tmp_path, samples=1))
    file = what.write()
    launched(what, {"name": "none"})
    monkeypatch.setattr(ModelSpec, "load", lambda *_: pytest.fail("the model was loaded"))
    assert run_job(str(file)) == 0


def test_a_launcher_plans_once(model, tmp_path, monkeypatch):
    plans = []
    plan = planning.plan
    monkeypatch.setattr(planning, "plan", lambda *given: plans.append(given) or plan(*given))
    monkeypatch.setitem(launchers.STARTERS, "local", lambda what, settings: run_job(str(what.write())))
    assert launched(job_spec(model, tmp_path, samples=2), LOCAL).computed == 2 * len(POLICIES)
    assert len(plans) == 1


def test_samples_that_no_worker_has_computed_are_counted_in_the_store(model, tmp_path, monkeypatch):
    monkeypatch.setitem(launchers.STARTERS, "local", lambda what, settings: None)
    launched(job_spec(model, tmp_path, samples=1), {"name": "none"})
    with pytest.raises(UserError, match=f"{SAMPLES * len(POLICIES)} samples are missing and no worker is left"):
        launched(job_spec(model, tmp_path), LOCAL)


def test_what_is_no_job_spec_is_refused(tmp_path):
    (tmp_path / "job.json.gz").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "other.json.gz").write_text("{}")
    for file in tmp_path.glob("*.json.gz"):
        with pytest.raises(UserError, match="is no job spec for a worker"):
            WorkerSpec.read(file)
