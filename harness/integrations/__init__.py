"""What ties a sweep to other programs: loggers (Weights & Biases) and lm-evaluation-harness."""
