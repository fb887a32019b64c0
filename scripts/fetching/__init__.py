"""What `scripts.fetch_data` is made of: where data come from, and what they must be."""
