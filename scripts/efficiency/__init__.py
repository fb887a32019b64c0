"""What the papers' methods cost on this machine: times, cache memory and counted operations."""
