"""What the papers' methods cost on the machine at hand: times, cache memory and counted operations."""
