"""The engine: a slot cache, an attention function, prompt processing in true blocks, decode, perplexity, a ledger."""

from harness.engine.ledger import Ledger
from harness.engine.rows import REGIMES, EngineError, Outcome, Prompting, Row
from harness.engine.run import Engine

__all__ = ["REGIMES", "Engine", "EngineError", "Ledger", "Outcome", "Prompting", "Row"]
