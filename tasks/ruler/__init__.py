"""RULER: synthetic retrieval, tracing and counting, made here for any tokenizer and length (tasks.md section 4)."""

from tasks.ruler.task import Ruler

__all__ = ["Ruler"]
