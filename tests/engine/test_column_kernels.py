"""The GPU's statistics equal those of plain torch: on a GPU as compiled, elsewhere in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.gpu
def test_the_kernels_equal_plain_torch():
    """In a process of its own, because Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton", reason="Triton is not installed (pip install -e '.[gpu]')")
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    file = Path(__file__).with_name("column_kernels_against_torch.py")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(file)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
