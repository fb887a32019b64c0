"""PyramidKV: SnapKV scores with a capacity that falls linearly over the layers (policies.md section 3.7)."""

import math
from fractions import Fraction

from tests.reference.policy import HeadView
from tests.reference.selection import exact, largest_remainder
from tests.reference.snapkv import SnapKV


def ends(base: int, prefix: int, beta: float) -> tuple[int, int]:
    """Prefix slots of the first and last layer: cap_max, cap_min. prefix = T - w limits the first one."""
    cap_min = math.floor(Fraction(base) / exact(beta))
    cap_max = 2 * base - cap_min
    if cap_max >= prefix:
        cap_max = prefix
        cap_min = 2 * base - cap_max
    return cap_max, cap_min


def public_code(base: int, prefix: int, n_layers: int, beta: float = 20) -> list[int]:
    """Floored step, as released: the total exceeds n_layers * base."""
    cap_max, cap_min = ends(base, prefix, beta)
    if n_layers == 1:
        return [base]  # the released formula divides by L - 1
    step = math.floor(Fraction(cap_max - cap_min, n_layers - 1))
    return [cap_max - index * step for index in range(n_layers)]


def exact_schedule(base: int, prefix: int, n_layers: int, beta: float = 20) -> list[int]:
    """Real-valued linear schedule between the same (integer) ends, rounded so that the total is n_layers *
    base.
    """
    cap_max, cap_min = ends(base, prefix, beta)
    if n_layers == 1:
        return [base]
    step = Fraction(cap_max - cap_min, n_layers - 1)
    return largest_remainder([cap_max - index * step for index in range(n_layers)], n_layers * base)


def capacities(
    budget: int, window: int, total: int, n_layers: int, beta: float = 20, schedule: str = "exact"
) -> list[int]:
    """Prefix slots cap_l of every layer for an average budget C = `budget` that includes the window.

    A budget that does not even hold the window leaves no prefix to distribute.
    """
    if schedule not in {"exact", "public_code"}:
        raise ValueError(f"unknown schedule {schedule!r}")
    if budget <= window:
        return [0] * n_layers
    plan = exact_schedule if schedule == "exact" else public_code
    return plan(budget - window, total - window, n_layers, beta)


class PyramidKV(SnapKV):
    """Layer l keeps cap_l + w slots, recomputed for every prompt (freezing the first one is a known bug)."""

    def __init__(
        self,
        window: int = 32,
        kernel: int = 7,
        pool: str = "max",
        beta: float = 20,
        schedule: str = "exact",
        **common: str,
    ) -> None:
        once = {"prefill_evict": "once_after_prompt", "decode_evict": "never"}
        super().__init__(window, kernel, pool, **once | common)
        self.beta, self.schedule = beta, schedule

    def target(self, head: HeadView, budget: int) -> int:
        view = head.layer
        if budget <= self.window:
            return budget
        plan = capacities(budget, self.window, view.total, view.n_layers, self.beta, self.schedule)
        return plan[view.index] + self.window
