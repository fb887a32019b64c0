"""LongBench and LongBench-E: 21 subsets, their official prompts, post-processing and scores (tasks.md section 2)."""

from tasks.longbench.task import LongBench

__all__ = ["LongBench"]
