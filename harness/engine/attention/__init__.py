"""Attention over slots: masks, the fused output, the statistics that policies read, and positions inside the cache."""
