"""A paper's report: each of its tables and figures beside ours, and what became of its claims."""
