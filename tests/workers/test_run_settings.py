"""Shards and run settings: what is written is understood, and what cannot be is refused."""

from __future__ import annotations

import pytest
import torch

from harness.errors import UserError
from harness.runner.run_settings import ROWS_WHEN_DETERMINISTIC, RunSettings, Shard

PLAIN = {"shard": None, "lease": 60, "deterministic": False, "batch_rows": None, "engine": {"compile": "auto"}}


@pytest.mark.parametrize("of", [1, 2, 16])
def test_each_sample_belongs_to_one_shard(of):
    shards = [Shard.parse(f"{number}/{of}") for number in range(1, of + 1)]
    assert all(sum(shard.holds(rank) for shard in shards) == 1 for rank in range(100))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="write shard=3/16"):
        Shard.parse(text)


def test_a_deterministic_run_has_a_width_that_memory_does_not_decide():
    assert RunSettings.parse({**PLAIN, "deterministic": True}).batch_rows == ROWS_WHEN_DETERMINISTIC
    assert RunSettings.parse({**PLAIN, "deterministic": True, "batch_rows": 8}).batch_rows == 8
    assert RunSettings.parse(PLAIN).batch_rows is None


def test_layers_are_compiled_on_a_gpu_unless_rows_must_repeat_bit_for_bit_and_packed_on_a_processor():
    gpu, processor = torch.device("cuda"), torch.device("cpu")
    assert RunSettings.parse(PLAIN).pack_on(processor)
    assert not RunSettings.parse(PLAIN).pack_on(gpu)
    assert RunSettings.parse(PLAIN).compile_on(gpu)
    assert not RunSettings.parse(PLAIN).compile_on(processor)
    assert not RunSettings.parse({**PLAIN, "deterministic": True}).compile_on(gpu)
    for off in ("off", False):  # the latter is how YAML reads it
        assert not RunSettings.parse({**PLAIN, "engine": {"compile": off}}).compile_on(gpu)
        assert not RunSettings.parse({**PLAIN, "engine": {"compile": off}}).pack_on(processor)
