"""A 5-gram model with the same tokenizer and training novels: what book perplexity has to beat."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

ORDER = 5
DISCOUNT = 0.75  # of every count, given to the shorter context


class FiveGram:
    """Interpolated absolute discounting, from the uniform distribution over ``vocabulary`` items up to five tokens."""

    def __init__(self, texts: Iterable[Sequence[int]], vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for ids in texts:
            for index, token in enumerate(ids):
                for back in range(min(ORDER, index + 1)):
                    self.counts[tuple(ids[index - back : index])][token] += 1
        self.totals = {context: counter.total() for context, counter in self.counts.items()}

    def probability(self, context: Sequence[int], token: int) -> float:
        """Of ``token`` after the last four of ``context``."""
        share = 1 / self.vocabulary
        for back in range(min(ORDER, len(context) + 1)):
            seen = tuple(context[len(context) - back :])
            if seen not in self.totals:
                break
            counter, total = self.counts[seen], self.totals[seen]
            share = (max(counter[token] - DISCOUNT, 0) + DISCOUNT * len(counter) * share) / total
        return share

    def perplexity(self, windows: Iterable[Sequence[int]]) -> float:
        """e to the mean negative log-likelihood of all tokens but the first of each window."""
        losses = [
            -math.log(self.probability(ids[max(0, i - 4) : i], ids[i])) for ids in windows for i in range(1, len(ids))
        ]
        return math.exp(sum(losses) / len(losses))
