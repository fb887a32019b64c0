"""Runs cells: plans what is missing, makes batches, computes them in one or many workers, and stores the rows."""
