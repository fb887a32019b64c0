"""This project's engine as a model of lm-evaluation-harness: `KVReplica`, and ``python -m harness.lm_eval``."""

from harness.errors import UserError

try:
    from harness.lm_eval.model import KVReplica
except ImportError as error:
    raise UserError(f"harness.lm_eval needs the package lm-eval ({error}): pip install -e '.[lm-eval]'.") from error

__all__ = ["KVReplica"]
