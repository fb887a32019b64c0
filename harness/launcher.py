"""Our Hydra launcher: the sweeper hands over all jobs of a ``-m`` run at once, and they run as one sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

Work = Callable[[Sequence[DictConfig]], None]
_work: list[Work] = []  # what a sweep does with its configurations; set once by the command line


@dataclass
class SweepLauncherConfig:
    """``hydra/launcher=sweep``."""

    _target_: str = "harness.launcher.SweepLauncher"


class SweepLauncher(Launcher):  # type: ignore[misc]
    """Composes every job of the sweep and passes the configurations on in one call."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook: remember what is needed to compose jobs."""
        self.context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's hook: all jobs of the sweep, as lists of overrides."""
        configs = []
        for number, overrides in enumerate(job_overrides, start=initial_job_idx):
            composed = self.context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(composed):
                composed.hydra.job.num = number
            configs.append(composed)
        _work[0](configs)
        return [_returned(config, overrides) for config, overrides in zip(configs, job_overrides, strict=True)]


def register(work: Work) -> None:
    """Make the launcher known to Hydra, and say what a sweep does with its configurations."""
    _work[:] = [work]
    Plugins.instance().register(SweepLauncher)
    ConfigStore.instance().store(group="hydra/launcher", name="sweep", node=SweepLauncherConfig, provider="kvreplica")


def _returned(config: DictConfig, overrides: Sequence[str]) -> Any:
    return JobReturn(overrides=overrides, cfg=config, working_dir=str(Path.cwd()), status=JobStatus.COMPLETED)
