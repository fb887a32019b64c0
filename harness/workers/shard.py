"""Static sharding: a share of a sweep that needs no word with the others, for schedulers without a shared folder."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UserError


@dataclass(frozen=True)
class Shard:
    """Every ``of``-th sample, beginning with the ``number``-th (from 1), of each task under all its cells."""

    number: int = 1
    of: int = 1

    @staticmethod
    def parse(text: str | None) -> Shard:
        """``3/16``; None is everything. Raises `UserError`."""
        if text is None:
            return Shard()
        match = re.fullmatch(r"(\d+)/(\d+)", str(text).strip())
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"shard={text} is not a share of a sweep: write shard=3/16 for the third of sixteen.")
        return Shard(int(match[1]), int(match[2]))

    def holds(self, rank: int) -> bool:
        """Whether the sample at this place (from 0) of its task belongs to the share."""
        return rank % self.of == self.number - 1
