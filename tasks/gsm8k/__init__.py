"""GSM8K: grade-school arithmetic in words, by chain of thought, and as multiple choice (tasks.md 5.2 and 5.3)."""

from tasks.gsm8k.task import Gsm8k

__all__ = ["Gsm8k"]
