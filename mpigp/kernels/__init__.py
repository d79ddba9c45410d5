"""Covariance functions."""
