"""The curriculum: stages of one length and one mixture each, and the learning rate over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """``tokens`` in all, ``batch`` tokens per step, in sequences of ``length``."""

    length: int
    tokens: int
    batch: int
    mixture: Mapping[str, float]

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        return max(self.batch // self.length, 1)

    @property
    def steps(self) -> int:
        """Steps, whole ones, at least one."""
        return max(self.tokens // (self.sequences * self.length), 1)


@dataclass(frozen=True)
class Plan:
    """All stages. A step is a number from 0 on; what it does follows from it alone."""

    stages: tuple[Stage, ...]
    warmup: int  # steps
    constant: float  # share of all tokens before the learning rate falls, linearly, to ``last`` of itself
    last: float

    @staticmethod
    def parse(config: Mapping[str, Any]) -> Plan:
        """From the configuration; a stage names its mixture, or has the one of the stage before."""
        stages: list[Stage] = []
        for entry in config["stages"]:
            mixture = config["mixtures"][entry["mixture"]]
            stages.append(Stage(entry["length"], round(entry["tokens"] * config["scale"]), entry["batch"], mixture))
        return Plan(tuple(stages), **config["schedule"])

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
        share = self.done(step) / self.tokens
        falling = 1.0 if share < self.constant else 1 - (1 - self.last) * (share - self.constant) / (1 - self.constant)
        return min((step + 1) / self.warmup, 1.0) * falling


def tokens_of(stages: Sequence[Stage]) -> int:
    """Tokens that stages really take, in whole steps."""
    return sum(stage.steps * stage.sequences * stage.length for stage in stages)
