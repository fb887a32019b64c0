"""What a policy decides about a chunk: asked in one layer, or in all layers at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from policies import CacheView

if TYPE_CHECKING:
    from harness.engine.cohort import Cohort, Group


@dataclass(frozen=True)
class Choice:
    """``kept`` (r, H, fill + m) bool, or None where all stays; ``states``: by name, all that the policy carries on."""

    kept: Tensor | None
    states: Mapping[str, Tensor]


def choose(
    cohort: Cohort, group: Group, view: Callable[[Group], CacheView], layers: int = 1, spared: Tensor | None = None
) -> Choice:
    """A group's decision over its ``view``, whose rows are the group's, each in so many ``layers``.

    The view is made only where it is asked for. ``spared``: what was decided before attention.
    """
    over = cohort.over(group)
    if not any(over) and not group.policy.is_stateful:
        return Choice(None, {})
    seen = view(group)
    states = {name: seen.state[name] for name in (*group.policy.state, *group.policy.carried)}
    if not any(over) or spared is not None:
        return Choice(spared if any(over) else None, states)
    kept, is_nan = group.policy.keep(seen)
    cohort.tally.called(group.rows, over, is_nan.view(-1, layers).any(1), layers)
    return Choice(kept, states)
