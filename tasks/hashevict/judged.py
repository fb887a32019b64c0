"""The LLM judge beside the other scores of a free response: asked at an endpoint, or plainly refused."""

from __future__ import annotations

import atexit
import sys
from functools import cache
from pathlib import Path

from tasks.base import TaskError
from tasks.metrics.chat_client import ChatClient, Endpoint
from tasks.metrics.judge import Judge, Skipped

ANSWERS = Path("data/judge")  # in the working directory: what was answered once is never paid for again
SCORES = ("judge", "judge_similarity", "judge_coherent", "judge_faithful", "judge_helpful")  # from 1 to 5


def refuse_without_key(model: str) -> None:
    """Raise `TaskError` before anything is computed where the judge cannot be asked."""
    if skipped := judge(model).skipped():
        raise TaskError(f"{skipped.reason} Or run without the judge: task.judge=null.")


def verdict(model: str, prompt: str, prediction: str, reference: str) -> dict[str, float]:
    """`SCORES` of one prediction. Raises `TaskError` where no answer was to be had: no score is made up."""
    found = judge(model).score(prompt, prediction, (reference,))
    if isinstance(found, Skipped):
        raise TaskError(f"{found.reason} What was answered is kept: run the same command again to go on from there.")
    numbers = (found.mean, found.similarity, found.coherent, found.faithful, found.helpful)
    return dict(zip(SCORES, map(float, numbers), strict=True))


@cache
def judge(model: str) -> Judge:
    """The judge for ``model`` at the endpoint that the environment names; its bill is printed when the process ends."""
    client = ChatClient(Endpoint.from_environment(model), ANSWERS)
    atexit.register(_bill, client)
    return Judge(client)


def _bill(client: ChatClient) -> None:
    if client.usage.calls or client.usage.cached:
        print(f"LLM judge: {client.usage.report(client.endpoint.prices)}", file=sys.stderr)
