"""KV-cache eviction policies: pure tensor code that knows no model, no file and no configuration system.

Shape legend of the whole project: ``R`` rows, ``H`` KV heads, ``G`` query heads per KV head, ``N`` slots, ``B`` block,
``D`` head dim, ``L`` layers, ``T`` prompt tokens.
"""

from policies.policy import DENSE, Policy, Protect, Schedule
from policies.registry import CORRECTIONS, SCORERS, build, nearest
from policies.scorer import Scorer
from policies.view import CacheView, PolicyError

__all__ = [
    "CORRECTIONS",
    "DENSE",
    "SCORERS",
    "CacheView",
    "Policy",
    "PolicyError",
    "Protect",
    "Schedule",
    "Scorer",
    "build",
    "nearest",
]
