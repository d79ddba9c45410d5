"""Where a fit starts: standardized columns, latent points, inducing points."""
