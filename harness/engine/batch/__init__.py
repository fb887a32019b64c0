"""Rows that run in lockstep: one pass over them, eviction in each layer, shared prompts, and what is counted."""
