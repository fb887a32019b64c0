"""HashEvict's own versions of GSM8K, MedQA, GovReport and MultiNews (tasks.md section 5)."""

from tasks.hashevict.task import HashEvict

__all__ = ["HashEvict"]
