"""Experiments of the tutorial, as commands."""
