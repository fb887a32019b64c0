"""After the prompt: greedy decode and teacher forcing, continuous batching, merged batches, the oracle's dense runs."""
