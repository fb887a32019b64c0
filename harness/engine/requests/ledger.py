"""The ledger: what a row really held, counted on the cache's tensors, and the promises it must keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ledger:
    """One row's account. Slots are per layer and KV head, bytes over all layers and heads of the row."""

    slots_requested: int  # -1 for a dense row
    slots_kept_max: int  # maximum over layers, heads and time
    slots_kept_mean: float  # mean over layers and heads at the end
    slots_peak: int  # visible during attention, the chunk included: maximum over layers, heads and time
    kv_bytes: int  # K and V at the largest persisted size
    state_bytes: int  # policy state beside them, at the same size
    tokens_evicted: float  # mean over layers and heads
    coverage: float  # share of prompt tokens that some layer and head holds after the prompt
    policy_calls: int  # selections asked of the policy, over all layers
    invalid: str = ""  # the first broken promise, as a sentence


@dataclass(frozen=True)
class Promise:
    """What the plan says a row must satisfy; the numbers come from its prompt, budget and regime alone."""

    persists: int  # N: slots that may stay after a chunk
    widest_chunk: int  # B: tokens of the widest chunk
    total_tokens: int  # tokens the row is fed
    must_evict: bool  # whether the budget binds at all
    uniform: bool = True  # whether every layer and head holds the same number
    slots: int | None = None  # all layers and heads together; None where a policy does not keep to a budget

    def broken_by(
        self, peak: int, kept: int, surplus: int, calls: int, evicted: float, is_nan: bool, slots: int
    ) -> str:
        """The first promise that the counted numbers break, or an empty string.

        ``surplus``: largest difference between slots a selection kept and slots it was allowed, negative if fewer.
        ``slots``: the most that all layers and heads held together.
        """
        if is_nan:
            return "The policy scored a slot as not-a-number, so its choice is meaningless."
        if self.slots is not None and slots > self.slots:
            return f"All layers and heads together persisted {slots} slots, more than the {self.slots} of the budget."
        if not self.uniform:
            return ""
        if surplus > 0:
            return f"The policy kept {surplus} slots more than its budget of {self.persists} in some layer and head."
        if surplus < 0:
            return f"The policy kept {-surplus} slots fewer than the budget allows in some layer and head."
        if kept > self.persists:
            return f"The cache persisted {kept} slots, more than the {self.persists} of the budget."
        if peak > self.persists + self.widest_chunk:
            return f"Attention saw {peak} slots, more than budget {self.persists} + block {self.widest_chunk}."
        if self.must_evict and calls == 0:
            return "The budget binds, but the policy was never called."
        if not self.must_evict and evicted > 0:
            return "The budget holds the whole sequence, but slots were evicted."
        return ""
