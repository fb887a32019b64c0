"""Training of the testbed, in parts: tokenizer, mixture, network, optimisers, checkpoints, evaluation, export."""
