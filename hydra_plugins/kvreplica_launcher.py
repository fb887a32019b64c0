"""Our Hydra launcher: it composes all jobs of a ``-m`` run and hands them on, so that they can run as one sweep.

It lives here because Hydra accepts plugins from the ``hydra_plugins`` namespace only, and finds them by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SweepLauncher(Launcher):  # type: ignore[misc]
    """Composes every job of the sweep first; the task function only gathers them (`harness.cli.main`)."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: remember what is needed to compose jobs."""
        self.context, self.config, self.gather = hydra_context, config, task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's hook: all jobs of the sweep, as lists of overrides; each may be an experiment of many grids."""
        jobs = [(config, overrides) for overrides in job_overrides for config in self._written_out(list(overrides))]
        for config, _ in jobs:
            self.gather(config)
        return [_done(config, overrides) for config, overrides in jobs]

    def _written_out(self, overrides: list[str]) -> list[DictConfig]:
        def compose(typed: Sequence[str]) -> DictConfig:
            config: DictConfig = self.context.config_loader.load_sweep_config(self.config, list(typed))
            return config

        from harness.config.foreign_code import check_trusted  # Hydra imports plugins for every command

        config = compose(overrides)
        check_trusted(config, [*self.config.hydra.overrides.task, *overrides])
        if "grids" not in config:
            return [config]
        from harness.config.experiments import (
            grid_jobs,  # Hydra imports plugins for every command; experiments are rare
        )

        return list(grid_jobs(config, overrides, config.hydra.runtime.choices.scale, compose))


def _done(config: DictConfig, overrides: Sequence[str]) -> Any:
    return JobReturn(overrides=overrides, cfg=config, working_dir=str(Path.cwd()), status=JobStatus.COMPLETED)


ConfigStore.instance().store(
    group="hydra/launcher", name="sweep", node={"_target_": "hydra_plugins.kvreplica_launcher.SweepLauncher"}
)
