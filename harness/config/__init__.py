"""From a composed configuration to cells: models, policies, budgets, plugins, and the identity of a cell."""
