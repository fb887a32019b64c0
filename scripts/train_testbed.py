"""Trains the testbed: ``python -m scripts.train_testbed [--config-name testbed-30m] [setting=value …]``.

Configuration: ``conf/train/``. Resumes from its checkpoint; ``export=true`` evaluates and exports what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from harness.cli.error_messages import errors_in_plain_words
from scripts.testbed import training_loop
from scripts.testbed.export_model import export


@hydra.main(version_base="1.3", config_path="../conf/train", config_name="testbed")  # type: ignore[untyped-decorator]
def main(config: DictConfig) -> None:
    """Trains to the end of the plan, evaluates and exports."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    folder = Path(settings["out"])
    with errors_in_plain_words():
        if not settings["export"]:
            training_loop.train(settings, folder)
        print(f"exported to {export(settings, folder)}")


if __name__ == "__main__":
    main()
