"""Which samples are computed together, what they will hold and take, and what a run has used."""
