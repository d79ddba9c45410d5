"""Output files: written atomically, and the model file, whose format is known here alone."""
