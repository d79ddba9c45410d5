"""The compiled loops."""

from mpigp.native._native import (
    Kernel,
    Rows,
    add_digits,
    chunk_dots,
    exponential,
    gplvm_gradient,
    gplvm_statistics,
    gram_gradient,
    instruction_set,
    regression_gradient,
    regression_statistics,
    sum_digits,
    workspace,
)

__all__ = [
    "Kernel",
    "Rows",
    "add_digits",
    "chunk_dots",
    "exponential",
    "gplvm_gradient",
    "gplvm_statistics",
    "gram_gradient",
    "instruction_set",
    "regression_gradient",
    "regression_statistics",
    "sum_digits",
    "workspace",
]
