"""What Python code calls: `run`, `compare` and `generate`."""
