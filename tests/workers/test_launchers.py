"""Every launcher brings one sweep to its end; what it cannot do it says in one sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pandas as pd
import pytest
from workers.small_sweeps import POLICIES, SAMPLES, job_spec, locks_held, table, times_stored, wait_until

from harness.errors import UserError
from harness.runner import launchers
from harness.runner.job_spec import JobSpec
from harness.runner.launchers import launch
from harness.runner.progress import Progress
from harness.runner.samples import Prompts

LOCAL = {"name": "local", "workers": 2, "retries": 1}
SLURM = {"name": "slurm", "workers": 4, "cluster": "local", "parameters": {"timeout_min": 5, "slurm_partition": "gpu"}}
RAY = {"name": "ray", "workers": 1, "address": None, "gpus": 0, "cpus": 1, "retries": 1}


def launched(what: JobSpec, settings):
    return launch(what, settings, Prompts(what.limit), Progress(shown=False))


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


def test_four_array_jobs_of_submitits_local_executor_complete_one_sweep(model, uninterrupted_table, tmp_path):
    pytest.importorskip("submitit")
    assert_complete(launched(job_spec(model, tmp_path), SLURM), tmp_path, uninterrupted_table)


def test_nothing_is_started_where_nothing_is_missing(model, tmp_path, monkeypatch):
    launched(job_spec(model, tmp_path, samples=1), {"name": "none"})
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a worker was started"))
    assert launched(job_spec(model, tmp_path, samples=1), LOCAL).present == len(POLICIES)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "slrum"}, "There is no launcher called 'slrum'.*slurm"),
        ({**LOCAL, "workers": 0}, "launcher.workers=0 is not possible"),
        ({**LOCAL, "retries": "many"}, "launcher.retries=many is not possible"),
        ({**SLURM, "cluster": "moon"}, "launcher.cluster=moon is neither slurm nor local"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(model, tmp_path, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        launched(job_spec(model, tmp_path), settings)


@pytest.mark.parametrize(("package", "settings"), [("submitit", SLURM), ("ray", RAY)])
def test_a_launcher_without_its_package_says_what_to_install(model, tmp_path, monkeypatch, package, settings):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"needs {package}: pip install -e '\.\[{settings['name']}\]'"):
        launched(job_spec(model, tmp_path), settings)


def test_workers_that_are_refused_their_work_end_the_sweep_with_their_sentence(model, tmp_path):
    what = job_spec(model, tmp_path)
    lost = JobSpec(what.cells, what.results_dir, "cuda", what.limit, what.settings)
    with pytest.raises(UserError, match="device=cuda is not on this machine"):
        launched(lost, {**LOCAL, "workers": 1})


def test_workers_that_fail_with_a_traceback_do_not_look_refused(tmp_path):
    """`make reproduce` goes on after exit code 2, which says that some cells cannot be run here."""
    log = tmp_path / "worker-0.txt"
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-c", "raise IndexError('too many')"], stderr=stream)
    with pytest.raises(RuntimeError, match=r"All workers have failed, see .*worker-0.txt: IndexError: too many"):
        launchers._watch([launchers._LocalWorker(0, process, log)], tmp_path, [], retries=0)


def test_a_job_spec_comes_back_as_it_was_written(model, tmp_path):
    what = job_spec(model, tmp_path, deterministic=True)
    again = JobSpec.read(what.write())
    assert [cell.id for cell in again.cells] == [cell.id for cell in what.cells]
    assert again.settings == what.settings


def test_a_worker_whose_code_is_not_that_of_the_command_computes_nothing(model, tmp_path):
    file = job_spec(model, tmp_path).write()
    content = json.loads(file.read_bytes())
    file.write_text(json.dumps({**content, "ids": ["0" * 16, *content["ids"][1:]]}))
    with pytest.raises(UserError, match="Code, data or model have changed since this sweep was started"):
        JobSpec.read(file)


def test_what_is_no_job_spec_is_refused(tmp_path):
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(UserError, match="is no job spec for a worker"):
        JobSpec.read(tmp_path / "job.json")
