"""Shared by all tests: one thread per process gives the same rounding on every machine."""

import torch

torch.set_num_threads(1)
