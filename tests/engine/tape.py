"""A stand-in for a CUDA graph on a CPU: the operations of a pass, recorded one by one and run again.

It freezes what a graph freezes: every host number, and the memory of every tensor. It refuses what a graph refuses: to
read a tensor's content on the host, and to make a tensor of host numbers. It cannot see ``tolist`` on a CPU.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ASKS_THE_DEVICE = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::item"}
INDEXES = {"aten::index", "aten::index_put_", "aten::index_put"}
COMES_FROM_THE_HOST = {"aten::lift_fresh", "aten::lift", "aten::lift_fresh_copy"}


class Tape(TorchDispatchMode):
    """Records the operations that run while it is active."""

    def __init__(self):
        super().__init__()
        self.recorded = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.name().split(".")[0]
        if name in ASKS_THE_DEVICE | COMES_FROM_THE_HOST or (name in INDEXES and picks_by_mask(args[1])):
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **kwargs)
        made = func(*args, **kwargs)
        if not is_view(func):
            self.recorded.append((func, args, kwargs, made))
        return made

    def play(self):
        """Run everything once more, into the same tensors."""
        for func, args, kwargs, made in self.recorded:
            again = func(*args, **kwargs)
            if not writes(func):
                for place, number in zip(tree_leaves(made), tree_leaves(again), strict=True):
                    if isinstance(place, torch.Tensor):
                        place.copy_(number)


def picks_by_mask(indices):
    """Whether the number of picked elements is known on the device only."""
    return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices)


def is_view(func):
    return any(out.alias_info is not None and not out.alias_info.is_write for out in func._schema.returns)


def writes(func):
    return any(argument.alias_info is not None and argument.alias_info.is_write for argument in func._schema.arguments)


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
