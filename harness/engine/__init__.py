"""The engine: runs requests through a transformers model under KV-cache eviction; start at `harness.engine.engine`."""
