"""The presets of policies.md section 2 by name. `make(name, **overrides)` builds a fresh policy."""

from collections.abc import Callable
from typing import Any

from tests.reference.adakv import AdaKV
from tests.reference.buzz import Buzz
from tests.reference.caote import Caote
from tests.reference.chunkkv import ChunkKV
from tests.reference.cur import CUR
from tests.reference.dropkv import DropKV
from tests.reference.fastgen import FastGen
from tests.reference.h2o import H2O
from tests.reference.hashevict import HashEvict
from tests.reference.headkv import HeadKV
from tests.reference.keydiff import KeyDiff
from tests.reference.kvec import KVec
from tests.reference.l2 import L2
from tests.reference.lagkv import LagKV
from tests.reference.policy import Policy
from tests.reference.pyramidkv import PyramidKV
from tests.reference.qfilters import QFilters
from tests.reference.rkv import RKV
from tests.reference.scissorhands import Scissorhands
from tests.reference.snapkv import SnapKV
from tests.reference.tova import Tova
from tests.reference.window_sink import Dense, Sink, Window

ONCE = {"prefill_evict": "once_after_prompt", "decode_evict": "never"}
ONCE_THEN_EAA = {"prefill_evict": "once_after_prompt", "order": "EAA"}

PRESETS: dict[str, tuple[Callable[..., Policy], dict[str, Any]]] = {
    "dense": (Dense, {}),
    "window": (Window, {}),
    "sink": (Sink, {}),
    "h2o/keydiff": (H2O, {}),
    "h2o/original": (H2O, {"recent": 0.5}),
    "h2o/coldcompress": (
        H2O,
        {"accumulate": "mean", "sink": 4, "recent": 10, "prompt_step": "snap16x5", **ONCE_THEN_EAA},
    ),
    "tova/keydiff": (Tova, {}),
    "tova/original": (Tova, {"heads": "layer", "prefill_evict": "once_after_prompt"}),
    "snapkv/keydiff": (SnapKV, {}),
    "snapkv/kvec": (SnapKV, {"pool": "max", **ONCE}),
    "snapkv/adakv": (SnapKV, {"pool": "max", **ONCE}),
    "pyramidkv/kvec": (PyramidKV, {}),
    "ada-snapkv/kvec": (AdaKV, {}),
    "ada-pyramid/kvec": (AdaKV, {"base": "pyramid"}),
    "headkv/original": (HeadKV, {}),
    "scissorhands/hashevict": (Scissorhands, {}),
    "fastgen/hashevict": (FastGen, {}),
    "l2/hashevict": (L2, {"sink": 4, "recent": 10, **ONCE_THEN_EAA}),
    "l2/original": (L2, {"skip_layers": (0, 1), "prefill_evict": "once_after_prompt"}),
    "hashevict/paper": (HashEvict, {}),
    "hashevict/released-code": (HashEvict, {"hash_of": "key", "prompt_mode": "recent_global"}),
    "keydiff/default": (KeyDiff, {}),
    "keydiff/rawmean": (KeyDiff, {"anchor": "mean"}),
    "keydiff/pairwise": (KeyDiff, {"anchor": "pairwise"}),
    "keydiff/median": (KeyDiff, {"anchor": "median"}),
    "keydiff/dot": (KeyDiff, {"metric": "dot"}),
    "keydiff/euclid": (KeyDiff, {"metric": "euclid"}),
    "buzz/default": (Buzz, {}),
    "buzz/no_max": (Buzz, {"new_rule": "interval"}),
    "buzz/swapped": (Buzz, {"swap_strides": True}),
    "buzz/fast": (Buzz, {"accumulate": False}),
    "buzz/logn": (Buzz, {"logn": True}),
    "kvec/default": (KVec, {}),
    "lagkv": (LagKV, {}),
    "rkv": (RKV, {}),
    "cur": (CUR, {}),
    "dropkv": (DropKV, {}),
    "qfilters": (QFilters, {}),
}


def make(name: str, **overrides: Any) -> Policy:
    """'caote+<preset>', 'fastcaote+<preset>' and 'chunkkv+<preset>' wrap a base, whose overrides the others are."""
    if name.startswith("chunkkv+"):
        size = overrides.pop("size", 10)
        return ChunkKV(make(name.removeprefix("chunkkv+"), **overrides), size)
    for prefix, fast in (("caote+", False), ("fastcaote+", True)):
        if name.startswith(prefix):
            return Caote(make(name[len(prefix) :], **overrides), fast=fast)
    build, parameters = PRESETS[name]
    return build(**{**parameters, **overrides})
