"""Sparse Gaussian process regression and the Bayesian GPLVM, distributed over MPI."""

__version__ = "0.1.0"
