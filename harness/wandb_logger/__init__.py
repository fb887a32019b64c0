"""Weights & Biases as a mirror of a sweep: nothing is read back from it, and no sweep waits for it (docs/wandb.md)."""

from harness.wandb_logger.logger import WandbLogger

__all__ = ["WandbLogger"]
