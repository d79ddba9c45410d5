"""A fit from start to end: options, start, optimizers, checkpoints, recovery."""
