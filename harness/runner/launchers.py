"""Launchers: how the workers of a sweep are started, by the setting ``launcher``.

``none``: this process is the only worker. ``local``: processes on this machine. ``slurm``: an array of jobs by
submitit. ``ray``: tasks of a cluster. The launcher plans once. All workers get the same job spec and share nothing but
the results folder, from which the launcher counts in the end what is missing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Any

import torch

from harness.console import say
from harness.errors import UserError
from harness.runner.job_spec import JobSpec, run_job
from harness.runner.memory import ON_A_PROCESSOR_AT_LEAST, SHARE_OF_FREE_MEMORY, physical_bytes
from harness.runner.model_work import ModelWork
from harness.runner.plan import RunResult
from harness.runner.process import stoppable
from harness.runner.progress import Progress, watch_progress
from harness.runner.samples import Prompts
from harness.store.store import Store

LOOKS = 0.2  # seconds between looks at local workers
PATIENCE = 60.0  # seconds that local workers have to end after they were asked to
ABOUT_AS_FAST = 0.9  # of the most layers a second: less than what workers gain outside the layers
Settings = Mapping[str, Any]  # of the group ``launcher``, checked (`harness.config.settings`)


# ``launcher=local``: one process per GPU; on processors ``launcher.workers`` of them, or as many as compute most.


@dataclass
class _LocalWorker:
    number: int
    process: subprocess.Popen[bytes]
    log: Path


def start_local(spec: JobSpec, settings: Settings) -> None:
    """Start the workers and wait for them. Killed workers are started again, ``retries`` times in all.

    Raises KeyboardInterrupt for SIGINT and SIGTERM, after the workers have ended too.
    """
    gpus = _gpus() if spec.device != "cpu" else []
    count = settings["workers"] or len(gpus) or fastest_number(spec, torch.get_num_threads())
    retries = settings["retries"]
    file = spec.write(count)
    logs = spec.results_dir / "logs" / file.name.partition(".")[0]
    logs.mkdir(parents=True, exist_ok=True)
    say(f"{count} worker{'s' * (count > 1)}; the output of each is in {logs}")
    environments = [_environment(number, count, gpus) for number in range(count)]
    workers = [_start_worker(number, file, logs, each) for number, each in enumerate(environments)]
    try:
        with stoppable():
            _watch(workers, file, environments, retries)
    except KeyboardInterrupt:
        _stop(workers)
        raise
    finally:
        file.unlink(missing_ok=True)


def _watch(workers: list[_LocalWorker], file: Path, environments: Sequence[Mapping[str, str]], retries: int) -> None:
    """Wait until all workers have ended.

    Raises `UserError` with the message of a worker where all ended with a user error, and RuntimeError where all ended
    with a traceback: a sweep that stopped half-way must not look finished.
    """
    while True:
        for place, worker in enumerate(workers):
            code = worker.process.poll()
            if code is not None and code < 0 and retries > 0:
                retries -= 1
                say(f"Worker {worker.number} was killed by signal {-code}: another takes its place.")
                workers[place] = _start_worker(worker.number, file, worker.log.parent, environments[worker.number])
        if all(worker.process.poll() is not None for worker in workers):
            break
        time.sleep(LOOKS)
    if all(worker.process.returncode > 0 for worker in workers):
        first = min(workers, key=lambda worker: worker.process.returncode)  # 1 is a traceback, 2 a user error
        lines = first.log.read_text().strip().splitlines()
        if first.process.returncode == 1:
            raise RuntimeError(f"All workers have failed, see {first.log}: {lines[-1] if lines else 'it is empty'}")
        raise UserError(lines[-1] if lines else f"All workers have failed: see {first.log.parent}.")


def fastest_number(spec: JobSpec, cores: int) -> int:
    """How many workers compute most on a machine without GPUs, where they share the cores: a power of two.

    Measured for some seconds, with layers of the shape of the sweep's largest model. Of numbers within
    `ABOUT_AS_FAST` of the best the largest: Python, small tensors, texts and scores have one thread in each worker. Not
    measured, and one: where OMP_NUM_THREADS says how many threads a process has; in deterministic runs, since the
    number of threads decides the last bits of a sum; and where memory or samples suffice for one only.
    """
    work = max(spec.work or (), key=lambda each: each.footprint.weights, default=None)
    if work is None or spec.settings.deterministic or "OMP_NUM_THREADS" in os.environ:
        return 1
    samples = sum(len(each.jobs) for each in spec.work or ())
    held = work.footprint.weights * work.footprint.itemsize + ON_A_PROCESSOR_AT_LEAST
    most = min(cores, samples, int(SHARE_OF_FREE_MEMORY * physical_bytes() / held))
    numbers = [1 << power for power in range(most.bit_length())]
    if len(numbers) < 2:
        return 1
    before, config = time.perf_counter(), work.model.config().get_text_config()
    shape = (config.hidden_size, config.intermediate_size, work.model.dtype)
    speeds = {number: _layers_a_second(number, cores // number, shape) for number in numbers}
    shown = ", ".join(f"{number} × {cores // number} {speed:.0f}" for number, speed in speeds.items())
    took = time.perf_counter() - before
    say(f"Layers a second, by workers × threads: {shown} (measured in {took:.0f} seconds)")
    return max(number for number in numbers if speeds[number] >= ABOUT_AS_FAST * max(speeds.values()))


def _layers_a_second(workers: int, threads: int, shape: Iterable[object]) -> float:
    """What so many processes compute beside one another, added up; 0 where one of them fails."""
    command = [sys.executable, "-m", "harness.runner.layer_speed", *map(str, shape)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with contextlib.ExitStack() as running:
        processes = [
            running.enter_context(subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=DEVNULL))
            for _ in range(workers)
        ]
        pipes = [(each.stdin, each.stdout) for each in processes if each.stdin and each.stdout]
        for _, answers in pipes:
            answers.readline()  # it has loaded torch and is warm
        for orders, _ in pipes:
            orders.close()  # now all at once
        try:
            return sum([float(answers.readline()) for _, answers in pipes])
        except ValueError:  # one has ended without a number
            return 0.0


def _environment(number: int, count: int, gpus: Sequence[str]) -> dict[str, str]:
    """The environment of a worker: its GPU, or its share of the cores, so that workers do not compete for cores."""
    environment = dict(os.environ)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    else:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // count)))
    return environment


def _start_worker(number: int, file: Path, logs: Path, environment: Mapping[str, str]) -> _LocalWorker:
    log = logs / f"worker-{number}.txt"
    with log.open("ab") as stream:
        return _LocalWorker(number, _process(file, environment, stream), log)


def _process(file: Path, environment: Mapping[str, str], stream: IO[bytes]) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C reaches only this process, which then stops the workers.

    Its own number goes with the job, so that workers end with it even where it is killed and cannot stop them.
    """
    command = [sys.executable, "-m", "harness", "worker", str(file), str(os.getpid())]
    return subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, start_new_session=True)


def _stop(workers: list[_LocalWorker]) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    for worker in workers:
        try:
            worker.process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()


def _gpus() -> list[str]:
    """The GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    return names[: torch.cuda.device_count()]


# ``launcher=slurm``: an array of jobs by submitit.


def start_slurm(spec: JobSpec, settings: Settings) -> None:
    """Submit the array and wait for it. Failed jobs are reported; the others take over their work.

    Raises `UserError` without submitit, without Slurm, and for settings that submitit does not know.
    """
    try:
        submitit = importlib.import_module("submitit")
    except ImportError as error:
        raise UserError("launcher=slurm needs submitit: pip install -e '.[slurm]'.") from error
    count, cluster = settings["workers"], settings["cluster"]
    folder = spec.results_dir.resolve() / "logs" / "slurm"
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(**_slurm_parameters(settings, cluster))
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise UserError(f"Slurm cannot be given this ({' '.join(str(error).split())}): check launcher.*") from error
    file = spec.write(count)
    jobs = executor.map_array(functools.partial(_run_array_job, str(file)), list(range(count)))
    say(f"{count} array jobs ({', '.join(str(job.job_id) for job in jobs)}); their output is in {folder}")
    for job in jobs:
        failure = job.exception()
        if failure is not None:
            say(f"Array job {job.job_id} failed: {str(failure).strip().splitlines()[-1]}")
    file.unlink(missing_ok=True)  # kept where this command is stopped: the array goes on


def _run_array_job(file: str, number: int) -> int:
    """One array job. All are the same: workers take batches from the work queue."""
    return run_job(file)


def _slurm_parameters(settings: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    parameters = dict(settings.get("parameters") or {})
    if cluster == "local":  # submitit's local executor knows neither partitions nor accounts
        return {key: value for key, value in parameters.items() if not key.startswith("slurm_")}
    return parameters


# ``launcher=ray``: tasks of a running Ray cluster, or of one on this machine.


def start_ray(spec: JobSpec, settings: Settings) -> None:
    """Start the tasks and wait for them. A task whose node is lost runs again elsewhere, ``retries`` times.

    Raises `UserError` without ray, and where no cluster answers at ``address``.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UserError("launcher=ray needs ray: pip install -e '.[ray]'.") from error
    count, retries, address = settings["workers"], settings["retries"], settings["address"]
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"No Ray cluster answers at launcher.address={address}: start one with 'ray start --head', or leave the "
            "address out for one on this machine."
        ) from error
    try:
        resources = {"num_cpus": settings["cpus"], "num_gpus": settings["gpus"]}
        _refuse_impossible(ray.cluster_resources(), resources)
        task = ray.remote(max_retries=retries, scheduling_strategy="SPREAD", **resources)(run_job)
        file = spec.write(count)
        say(f"{count} Ray tasks on {len(ray.nodes())} nodes")
        try:
            _wait_for_ray(ray, [task.remote(str(file)) for _ in range(count)])
        finally:
            file.unlink(missing_ok=True)
    finally:
        ray.shutdown()


def _wait_for_ray(ray: Any, tasks: list[Any]) -> None:
    """Wait until all have ended. Failed tasks are reported; the others take over their work."""
    for task in tasks:
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            say(f"A Ray task failed: {str(error).strip().splitlines()[-1]}")


def _refuse_impossible(cluster: Mapping[str, float], needed: Mapping[str, Any]) -> None:
    """Raise `UserError` for tasks that would wait for ever, because the cluster does not have what one needs."""
    for resource, key in (("CPU", "num_cpus"), ("GPU", "num_gpus")):
        if needed[key] > cluster.get(resource, 0):
            raise UserError(
                f"The Ray cluster has {cluster.get(resource, 0):g} {resource}, and each worker needs {needed[key]}: "
                f"set launcher.{key.removeprefix('num_')} lower."
            )


# All of them.


STARTERS: dict[str, Callable[[JobSpec, Settings], None]] = {
    "local": start_local,
    "slurm": start_slurm,
    "ray": start_ray,
}


def launch(spec: JobSpec, settings: Settings, prompts: Prompts, progress: Progress) -> RunResult:
    """Run a job spec to its end with the launcher of that name.

    Raises `UserError` for a launcher that does not exist or whose package is missing, and where samples are missing
    after all workers have ended.
    """
    name = str(settings["name"])
    if name == "none":
        return spec.compute(prompts, progress)
    plans, store = spec.plans(prompts), Store(spec.results_dir / "runs")
    present, requested = sum(plan.present for plan in plans), sum(plan.requested for plan in plans)
    if any(plan.jobs for plan in plans):
        work = tuple(ModelWork.of(plan, prompts, spec.settings) for plan in plans if plan.jobs)
        with watch_progress(store, plans, work):
            STARTERS[name](replace(spec, work=work), settings)
    now = sum(plan.count_present(store) for plan in plans)
    if now < requested:
        raise UserError(
            f"{requested - now} samples are missing and no worker is left. What was finished is kept: run the same "
            "command again to go on from there; the output of the workers is in the folder named above."
        )
    return RunResult(spec.unique_cells, store, now - present, present)
