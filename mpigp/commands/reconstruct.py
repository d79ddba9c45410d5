"""Reconstruct all outputs of rows with missing (NaN) entries, by a GPLVM."""

from functools import partial

from mpigp.commands.embed import add_arguments, apply
from mpigp.gp.embedding import reconstruct

__all__ = ["PARALLEL", "add_arguments", "run"]

PARALLEL = True
run = partial(apply, method=reconstruct, done="reconstructed")
