"""What is measured for which item of which paper. Dense stands beside every group of cases, in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.config.policy_config import preset
from harness.engine.requests import Regime
from harness.papers.efficiency_rows import BOARD_ITEM

BLOCKED = ("dense", "window", "sink", "h2o/keydiff", "tova/keydiff", "snapkv/keydiff", "keydiff")


@dataclass(frozen=True)
class CostCase:
    """One row under one policy. ``tokens``: of the prompt. ``new``: lengths of generation at which time is noted.

    ``setting``: what differs from the preset, as ``recovery=0.7``. ``share``: the budget as it is called, if it is one.
    """

    item: str
    policy: str
    regime: Regime
    tokens: int
    budget: int  # slots
    block: int = 32
    new: tuple[int, ...] = (32,)
    share: str = ""
    setting: str = ""
    overrides: tuple[str, ...] = ()  # of the composed policy, which change none of its work

    @property
    def label(self) -> str:
        """The policy with its setting."""
        return f"{self.policy} ({self.setting})" if self.setting else self.policy


@dataclass(frozen=True)
class Scale:
    """Sizes in tokens. ``mini``: a model of 5 million parameters with 4096 positions on two cores.

    ``small``: what claims are tested on alone, with the shape of SmolLM2-135M, whose steps take ten times as long.
    """

    tokens: int = 1024
    budget: int = 256
    block: int = 32
    new: int = 32
    summary: int = 512  # HashEvict's document to summarize
    grid_in: tuple[int, ...] = (125, 250, 500, 2500)  # a quarter of K-VEC's prompts
    grid_out: tuple[int, ...] = (10, 20, 30, 200)  # a tenth of its outputs
    grid_budget: int = 64
    lengths: tuple[int, ...] = (512, 1024, 2048)  # CAOTE's 4k, 8k and 32k
    caches: tuple[int, ...] = (512, 1024)  # CAOTE's generation
    tests_only: bool = False  # whether only what claims are tested on is timed, and nothing is counted


SCALES: Mapping[str, Scale] = {
    "mini": Scale(),
    "small": Scale(block=128, grid_in=(128, 256, 512, 1024), grid_out=(10, 20, 30, 60), tests_only=True),
    "full": Scale(
        tokens=8192, budget=2048, block=128, new=128, summary=16384, grid_in=(500, 1000, 2000, 10000),
        grid_out=(100, 200, 300, 2000), grid_budget=512, lengths=(4096, 8192, 32768),
    ),
}  # fmt: skip

CAOTE = ("h2o", "tova", "snapkv")
ONE_SHOT = {
    "buzz": ("dense", "buzz", "buzz/logn", "h2o/buzz", "sink/buzz", "window/buzz"),
    "hashevict": ("dense", "l2/hashevict", "h2o/coldcompress", "scissorhands"),
    "kvec": ("dense", "snapkv/kvec", "{kvec}", "pyramidkv/kvec", "ada_snapkv", "ada_pyramidkv", "sink", "gemfilter"),
}
GRID_TURNS = 3  # of K-VEC's two methods in a round
RECOVERIES = (0.7, 0.75, 0.8, 0.85)


def timed_cases(scale: Scale, kvec: str = "kvec") -> list[CostCase]:
    """All that is timed, in rounds. ``kvec``: the preset that fits the model's heads."""
    throughput = (case for case in _throughput(scale, kvec) if not scale.tests_only or case.item == "buzz/throughput")
    return [*throughput, *_summaries(scale), *_grid(scale, kvec)]


def _throughput(scale: Scale, kvec: str) -> Iterator[CostCase]:
    """Each paper's methods in the regime of the paper."""
    corrected = [each for base in CAOTE for each in (f"{base}/keydiff", f"caote_{base}", f"fastcaote_{base}")]
    groups: list[tuple[str, Regime, tuple[str, ...]]] = [
        ("keydiff", "blocked", BLOCKED),
        ("caote", "blocked", ("dense", *corrected)),
        *((paper, "one_shot", policies) for paper, policies in ONE_SHOT.items()),
        ("hashevict", "token_fed", ("hashevict/paper",)),
    ]
    for paper, regime, policies in groups:
        for name in policies:
            policy, item = name.format(kvec=kvec), f"{paper}/throughput"
            yield CostCase(item, policy, regime, scale.tokens, scale.budget, scale.block, (scale.new,))


def _summaries(scale: Scale) -> Iterator[CostCase]:
    """HashEvict Table 1: four methods at four budgets, FastGen by what it recovers."""
    item, tokens, new = "hashevict/table_1", scale.summary, (scale.new,)
    yield CostCase(item, "dense", "one_shot", tokens, tokens, new=new, share="100%")
    for percent in (30, 50, 70, 90):
        slots, share = tokens * percent // 100, f"{percent}%"
        yield CostCase(item, "hashevict/paper", "token_fed", tokens, slots, new=new, share=share)
        for name in ONE_SHOT["hashevict"][1:]:
            yield CostCase(item, name, "one_shot", tokens, slots, new=new, share=share)
    for recovery in RECOVERIES:
        yield CostCase(item, "fastgen", "one_shot", tokens, tokens + scale.new, new=new, setting=f"recovery={recovery}")


def _grid(scale: Scale, kvec: str) -> Iterator[CostCase]:
    """K-VEC Table 9: seconds over prompt and output length. Methods that differ by a few percent run oftener."""
    for tokens in scale.grid_in:
        for name in ("dense", *(GRID_TURNS * ("snapkv/kvec", kvec))):
            yield CostCase("kvec/table_9", name, "one_shot", tokens, scale.grid_budget, new=scale.grid_out)


BOARD = Path(__file__).parents[2] / "conf" / "exp" / "leaderboard.yaml"


def board_cases(scale: Scale, name: str, model: str) -> list[CostCase]:
    """The policies of `BOARD` at the scale of this name, each in the regimes that it is run in, dense beside them.

    Under the names that their rows have: ``h2o`` is called h2o/keydiff there.
    Q-Filters take the filters of the ``model`` whose shape is timed, though the weights are others.
    """
    grids = yaml.safe_load(BOARD.read_text())["grids"]["leaderboard"][name]
    named: dict[Regime, dict[str, None]] = {}
    for line in grids:
        named.setdefault(line["prompt"], {"dense": None}).update(
            dict.fromkeys(str(preset(policy)["name"]) for policy in line["policy"])
        )
    filters = (f"model.name={model}", "+policy.scorer.transfer=true")
    return [
        CostCase(
            BOARD_ITEM, policy, regime, scale.tokens, scale.budget, scale.block, (scale.new,),
            overrides=filters if policy.startswith("qfilters") else (),
        )
        for regime, policies in named.items()
        for policy in policies
    ]  # fmt: skip


SCORING = ("window", "sink", "h2o/keydiff", "tova/keydiff", "snapkv/keydiff", "keydiff")
OVERHEAD = ("dense", "h2o/keydiff", "caote_h2o", "fastcaote_h2o")


@dataclass(frozen=True)
class Counting:
    """A prompt whose operations are counted, or whose last ``blocks`` blocks are timed, under one policy."""

    item: str
    policy: str
    tokens: int
    budget: int
    block: int


def scoring(scale: Scale) -> Iterator[Counting]:
    """KeyDiff Table 4: one block more at a full cache, at N and B, at twice the N, and at twice the B."""
    for slots_times, block_times in ((1, 1), (2, 1), (1, 2)):
        slots, width = slots_times * scale.budget, block_times * scale.block
        for name in SCORING:
            yield Counting("keydiff/table_4", name, slots + width, slots, width)


def prompts(scale: Scale) -> Iterator[Counting]:
    """CAOTE Table 6: whole prompts."""
    for tokens in scale.lengths:
        for name in OVERHEAD:
            yield Counting("caote/table_6", name, tokens, scale.budget, scale.block)


def steps(scale: Scale) -> Iterator[Counting]:
    """CAOTE Table 7: one decode step over a cache of so many slots."""
    for slots in scale.caches:
        for name in OVERHEAD:
            yield Counting("caote/table_7", name, slots, slots, scale.block)
