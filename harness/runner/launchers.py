"""Numbers among the settings of a launcher."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from harness.console import say
from harness.errors import UserError
from harness.runner import progress as watching
from harness.runner.job_spec import JobSpec, run_job
from harness.runner.plan import Plan, RunResult, plan
from harness.runner.progress import Progress
from harness.runner.samples import Prompts
from harness.runner.signals import stoppable
from harness.store.store import Store
from policies import nearest


def count_setting(settings: Mapping[str, Any], key: str, default: int = 1, least: int = 1) -> int:
    """A whole number; ``default`` where the setting is null. Raises `UserError`."""
    value = settings.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"launcher.{key}={value} is not possible: give a whole number, at least {least}.")
    return value


# ``launcher=local``: processes on this machine, one per GPU, or ``launcher.workers`` where there is none.


LOOKS = 0.2  # seconds between looks at the workers
PATIENCE = 60.0  # seconds that workers have to end after they were asked to


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    log: Path


def start_local(order: JobSpec, settings: Mapping[str, Any]) -> None:
    """Start the workers and wait for their ends. One that was killed is started anew, ``retries`` times in all.

    Raises KeyboardInterrupt for SIGINT and SIGTERM, after the workers have ended too.
    """
    gpus = _gpus() if order.device != "cpu" else []
    count = count_setting(settings, "workers", default=max(1, len(gpus)))
    retries = count_setting(settings, "retries", least=0)
    file = order.write()
    logs = order.results_dir / "logs" / file.stem
    logs.mkdir(parents=True, exist_ok=True)
    say(f"{count} workers; what they say is in {logs}")
    environments = [_environment(number, count, gpus) for number in range(count)]
    workers = [_started(number, file, logs, each) for number, each in enumerate(environments)]
    try:
        with stoppable():
            _watch(workers, file, environments, retries)
    except KeyboardInterrupt:
        _stop(workers)
        raise
    finally:
        file.unlink(missing_ok=True)


def _watch(workers: list[_Worker], file: Path, environments: Sequence[Mapping[str, str]], retries: int) -> None:
    """Until all have ended. Raises `UserError` with the words of a worker where all were refused their work.

    Raises RuntimeError where all ended in a mistake of ours: a sweep that stopped half-way must not look finished.
    """
    while True:
        for place, worker in enumerate(workers):
            code = worker.process.poll()
            if code is not None and code < 0 and retries > 0:
                retries -= 1
                say(f"Worker {worker.number} was killed by signal {-code}: another takes its place.")
                workers[place] = _started(worker.number, file, worker.log.parent, environments[worker.number])
        if all(worker.process.poll() is not None for worker in workers):
            break
        time.sleep(LOOKS)
    if all(worker.process.returncode > 0 for worker in workers):
        first = min(workers, key=lambda worker: worker.process.returncode)  # 1 is a traceback, 2 a refusal
        said = first.log.read_text().strip().splitlines()
        if first.process.returncode == 1:
            raise RuntimeError(f"All workers have failed, see {first.log}: {said[-1] if said else 'it is empty'}")
        raise UserError(said[-1] if said else f"All workers have failed: see {first.log.parent}.")


def _environment(number: int, count: int, gpus: Sequence[str]) -> dict[str, str]:
    """Of a worker: its GPU, or its share of the cores, for which threads of several workers would only compete."""
    environment = dict(os.environ)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    else:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // count)))
    return environment


def _started(number: int, file: Path, logs: Path, environment: Mapping[str, str]) -> _Worker:
    log = logs / f"worker-{number}.txt"
    with log.open("ab") as stream:
        return _Worker(number, _process(file, environment, stream), log)


def _process(file: Path, environment: Mapping[str, str], stream: IO[bytes]) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C reaches this process first, which then asks the workers to end."""
    command = [sys.executable, "-m", "harness", "worker", str(file)]
    return subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, start_new_session=True)


def _stop(workers: list[_Worker]) -> None:
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
    """The accelerators that this process may use, as CUDA_VISIBLE_DEVICES calls them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    return names[: torch.cuda.device_count()]


# ``launcher=slurm``: an array of workers by submitit, with the results folder as all that they share.


CLUSTERS = ("slurm", "local")


def start_slurm(order: JobSpec, settings: Mapping[str, Any]) -> None:
    """Submit the array and wait for it. A job that fails is named; the others go on and take over its work.

    Raises `UserError` without submitit, without Slurm, and for settings that submitit does not know.
    """
    try:
        submitit = importlib.import_module("submitit")
    except ImportError as error:
        raise UserError("launcher=slurm needs submitit: pip install -e '.[slurm]'.") from error
    count = count_setting(settings, "workers")
    cluster = str(settings["cluster"])
    if cluster not in CLUSTERS:
        raise UserError(f"launcher.cluster={cluster} is neither slurm nor local (processes here, for trying it out).")
    folder = order.results_dir.resolve() / "logs" / "slurm"
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(**_slurm_parameters(settings, cluster))
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise UserError(f"Slurm cannot be given this ({' '.join(str(error).split())}): check launcher.*") from error
    file = order.write()
    jobs = executor.map_array(functools.partial(_run_array_job, str(file)), list(range(count)))
    say(f"{count} array jobs ({', '.join(str(job.job_id) for job in jobs)}); what they say is in {folder}")
    for job in jobs:
        failure = job.exception()
        if failure is not None:
            say(f"Array job {job.job_id} failed: {str(failure).strip().splitlines()[-1]}")
    file.unlink(missing_ok=True)  # not where this command is stopped: the array goes on


def _run_array_job(file: str, number: int) -> int:
    """One array job. All of them are the same: units are claimed, not dealt out."""
    return run_job(file)


def _slurm_parameters(settings: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    parameters = dict(settings.get("parameters") or {})
    if cluster == "local":  # submitit's local executor knows neither partitions nor accounts
        return {key: value for key, value in parameters.items() if not key.startswith("slurm_")}
    return parameters


# ``launcher=ray``: workers as Ray tasks, on a cluster that runs already or one of this machine.


def start_ray(order: JobSpec, settings: Mapping[str, Any]) -> None:
    """Start the tasks and wait for them. Ray runs a task again, elsewhere, whose node was lost, ``retries`` times.

    Raises `UserError` without ray and where no cluster answers at ``address``.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UserError("launcher=ray needs ray: pip install -e '.[ray]'.") from error
    count, retries = count_setting(settings, "workers"), count_setting(settings, "retries", least=0)
    address = settings.get("address")
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
        file = order.write()
        say(f"{count} Ray tasks on {len(ray.nodes())} nodes")
        try:
            _wait_for_ray(ray, [task.remote(str(file)) for _ in range(count)])
        finally:
            file.unlink(missing_ok=True)
    finally:
        ray.shutdown()


def _wait_for_ray(ray: Any, tasks: list[Any]) -> None:
    """Until all have ended; those that failed are named, and the others take over their work."""
    for task in tasks:
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            say(f"A Ray task failed: {str(error).strip().splitlines()[-1]}")


def _refuse_impossible(cluster: Mapping[str, float], wanted: Mapping[str, Any]) -> None:
    """A task that no node can hold would wait for ever."""
    for resource, key in (("CPU", "num_cpus"), ("GPU", "num_gpus")):
        if wanted[key] > cluster.get(resource, 0):
            raise UserError(
                f"The Ray cluster has {cluster.get(resource, 0):g} {resource}, and each worker asks for {wanted[key]}: "
                f"set launcher.{key.removeprefix('num_')} lower."
            )


# From the settings ``launcher`` to workers.


Settings = Mapping[str, Any]
STARTERS: dict[str, Callable[[JobSpec, Settings], None]] = {
    "local": start_local,
    "slurm": start_slurm,
    "ray": start_ray,
}


def launch(order: JobSpec, settings: Settings, prompts: Prompts, progress: Progress) -> RunResult:
    """Run an order to its end by the launcher of that name; with ``none`` this process is the only worker.

    Raises `UserError` for a launcher that does not exist or whose package is missing, and where samples are missing
    although no worker is left.
    """
    name = str(settings["name"])
    if name == "none":
        return order.work(prompts, progress)
    if name not in STARTERS:
        raise UserError(f"There is no launcher called '{name}'. {nearest(name, ['none', *STARTERS])}")
    before = _plans(order, prompts)
    if any(work.jobs for work in before):
        with watching.watch_progress(Store(order.results_dir / "runs"), before):
            STARTERS[name](order, settings)
    after = _plans(order, prompts)
    if missing := sum(len(work.jobs) for work in after):
        raise UserError(
            f"{missing} samples are missing and no worker is left. What was finished is kept: run the same command "
            "again to go on from there; what workers said is in the folder named above."
        )
    present, now = (sum(work.present for work in plans) for plans in (before, after))
    return RunResult(order.unique_cells, Store(order.results_dir / "runs"), now - present, present)


def _plans(order: JobSpec, prompts: Prompts) -> list[Plan]:
    """What is in the store and what is not, by model. Also every check that needs no weights."""
    store = Store(order.results_dir / "runs")
    models = dict.fromkeys(cell.model for cell in order.unique_cells)
    plans = [
        plan(model, [cell for cell in order.unique_cells if cell.model == model], store, prompts, order.settings.shard)
        for model in models
    ]
    store.check_writable()
    return plans
