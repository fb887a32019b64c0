"""The needle in a haystack of the literature: one sentence about San Francisco in long prose (tasks.md section 3)."""

from tasks.needle.task import Needle

__all__ = ["Needle"]
