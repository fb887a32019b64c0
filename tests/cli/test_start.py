"""What a command that computes nothing does not wait for."""

from __future__ import annotations

import subprocess
import sys


def test_a_sweep_is_planned_and_refused_without_transformers_models():
    code = "import harness.runner.sweep, sys; assert not {'harness.runner.worker', 'transformers.modeling_utils'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
