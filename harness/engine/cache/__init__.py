"""The KV cache: uniform and ragged layers of slots, and the memory they lie in."""
