"""Lost in the Middle: answers and values at the start, in the middle and at the end of a context (tasks.md 6.2)."""

from tasks.lost_in_the_middle.documents import DocumentQuestions
from tasks.lost_in_the_middle.pairs import KeyValueRetrieval

__all__ = ["DocumentQuestions", "KeyValueRetrieval"]
