"""A stand-in for a CUDA graph on a processor: the operations of a pass, noted one by one and done again.

It freezes what a graph freezes: every number of the host, and the place of every tensor. And it refuses what a graph
refuses: to look at a tensor's content, and to make a tensor of the host's numbers.
``tolist`` escapes it on a processor.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ASKS_THE_DEVICE = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::item"}
PICKS = {"aten::index", "aten::index_put_", "aten::index_put"}
COMES_FROM_THE_HOST = {"aten::lift_fresh", "aten::lift", "aten::lift_fresh_copy"}


class Tape(TorchDispatchMode):
    """Notes what is done while it is switched on."""

    def __init__(self):
        super().__init__()
        self.noted = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.name().split(".")[0]
        if name in ASKS_THE_DEVICE | COMES_FROM_THE_HOST or (name in PICKS and picks_by_mask(args[1])):
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **kwargs)
        made = func(*args, **kwargs)
        if not is_view(func):
            self.noted.append((func, args, kwargs, made))
        return made

    def play(self):
        """Everything once more, in the same places."""
        for func, args, kwargs, made in self.noted:
            again = func(*args, **kwargs)
            if not writes(func):
                for place, number in zip(tree_leaves(made), tree_leaves(again), strict=True):
                    if isinstance(place, torch.Tensor):
                        place.copy_(number)


def picks_by_mask(indices):
    """How many a mask picks is known on the device only."""
    return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices)


def is_view(func):
    return any(out.alias_info is not None and not out.alias_info.is_write for out in func._schema.returns)


def writes(func):
    return any(given.alias_info is not None and given.alias_info.is_write for given in func._schema.arguments)


def record(compute):
    """As `harness.engine.cuda_graphs.on_gpu` gives it. Recording computes here, so that the first replay is free."""
    tape = Tape()
    with tape:
        logits = compute()
    is_fresh = True

    def replay():
        nonlocal is_fresh
        if not is_fresh:
            tape.play()
        is_fresh = False
        return logits

    return replay
