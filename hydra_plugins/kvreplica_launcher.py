"""Our Hydra launcher: it composes all jobs of a ``-m`` run and hands them on, so that they can run as one sweep.

Our sweeper is Hydra's own, but that composes every job alone beforehand, to find what is wrong with it. They live
here because Hydra accepts plugins from the ``hydra_plugins`` namespace only, and finds them by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SweepLauncher(Launcher):  # type: ignore[misc]
    """Composes every job of the sweep; the task function only gathers them (`harness.cli.main.GatheredJobs`)."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: remember what is needed to compose jobs."""
        self.context, self.config, self.gathered = hydra_context, config, task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's hook: all jobs of the sweep, as lists of overrides; each may be an experiment of many grids."""
        # Hydra imports plugins for every command, and few commands are sweeps.
        from harness.config.foreign_code import check_trusted
        from harness.config.jobs import sweep_jobs

        def compose(typed: Sequence[str]) -> DictConfig:
            config: DictConfig = self.context.config_loader.load_sweep_config(self.config, list(typed))
            check_trusted(config, [*self.config.hydra.overrides.task, *typed])
            return config

        self.gathered.swept += sweep_jobs(job_overrides, compose)
        return [JobReturn(working_dir=str(Path.cwd()), status=JobStatus.COMPLETED) for _ in self.gathered.swept]


class JobSweeper(BasicSweeper):  # type: ignore[misc]
    """Hydra's product of all values, without a composition of each job before the launcher composes it."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Hydra's hook: nothing runs before the launcher has composed all jobs."""


ConfigStore.instance().store(
    group="hydra/launcher", name="sweep", node={"_target_": "hydra_plugins.kvreplica_launcher.SweepLauncher"}
)
ConfigStore.instance().store(
    group="hydra/sweeper",
    name="jobs",
    node={"_target_": "hydra_plugins.kvreplica_launcher.JobSweeper", "max_batch_size": None, "params": None},
)
