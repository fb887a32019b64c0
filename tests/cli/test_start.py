"""What a command that computes nothing does not wait for."""

from __future__ import annotations

import subprocess
import sys


def test_a_sweep_is_planned_and_refused_without_transformers_models():
    heavy = "{'harness.runner.worker', 'transformers.modeling_utils'}"
    code = f"import harness.runner.sweep, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_begins_without_the_drawing_of_its_page():
    heavy = "{'matplotlib', 'scipy.stats'}"
    code = f"import harness.cli.run, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
