"""The curriculum: stages of one length and one mixture each, and the learning rate over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """``tokens`` in all, ``batch`` tokens per step, in sequences of ``length``.

    ``rate`` is the factor of the learning rates at its begin and at its end; between them it changes linearly.
    """

    length: int
    tokens: int
    batch: int
    mixture: Mapping[str, float]
    rate: tuple[float, float]

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        return max(self.batch // self.length, 1)

    @property
    def steps(self) -> int:
        """Steps, whole ones, at least one."""
        return max(self.tokens // (self.sequences * self.length), 1)


@dataclass(frozen=True)
class Curriculum:
    """All stages. A step is a number from 0 on; what it does follows from it alone."""

    stages: tuple[Stage, ...]
    warmup: int  # steps

    @staticmethod
    def parse(config: Mapping[str, Any]) -> Curriculum:
        """From the configuration; a stage without ``rate`` keeps that at which the one before ended, 1 at first."""
        stages: list[Stage] = []
        for entry in config["stages"]:
            last = stages[-1].rate[1] if stages else 1.0
            begin, end = entry.get("rate", (last, last))
            tokens, mixture = round(entry["tokens"] * config["scale"]), config["mixtures"][entry["mixture"]]
            stages.append(Stage(entry["length"], tokens, entry["batch"], mixture, (begin, end)))
        return Curriculum(tuple(stages), config["warmup"])

    @property
    def steps(self) -> int:
        """Steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def tokens(self) -> int:
        """Tokens of all stages."""
        return tokens_of(self.stages)

    def at(self, step: int) -> tuple[int, int]:
        """The stage of a step and the number of steps before it in that stage."""
        for index, stage in enumerate(self.stages):
            if step < stage.steps:
                return index, step
            step -= stage.steps
        raise IndexError("the plan has ended")

    def done(self, step: int) -> int:
        """Tokens seen before a step."""
        index, within = self.at(step) if step < self.steps else (len(self.stages), 0)
        if index == len(self.stages):
            return self.tokens
        stage = self.stages[index]
        return tokens_of(self.stages[:index]) + within * stage.sequences * stage.length

    def rate(self, step: int) -> float:
        """The factor of the learning rates in a step."""
        index, within = self.at(step)
        begin, end = self.stages[index].rate
        return min((step + 1) / self.warmup, 1.0) * (begin + (end - begin) * within / self.stages[index].steps)


def tokens_of(stages: Sequence[Stage]) -> int:
    """Tokens that stages really take, in whole steps."""
    return sum(stage.steps * stage.sequences * stage.length for stage in stages)
