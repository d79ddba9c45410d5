"""Numerics that know nothing of Gaussian processes: reproducible sums, threads, Cholesky factors."""
