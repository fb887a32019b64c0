"""From a configuration to cells that can be run: budgets, policies, reference lines, grids of experiments."""
