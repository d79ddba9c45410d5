"""The compiled loops."""

from mpigp.native._native import (
    Kernel,
    Rows,
    exponential,
    gplvm_gradient,
    gplvm_statistics,
    gram_gradient,
    instruction_set,
    regression_gradient,
    regression_statistics,
    workspace,
)

__all__ = [
    "Kernel",
    "Rows",
    "exponential",
    "gplvm_gradient",
    "gplvm_statistics",
    "gram_gradient",
    "instruction_set",
    "regression_gradient",
    "regression_statistics",
    "workspace",
]
