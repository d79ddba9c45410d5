"""Covariance functions: those that are built in, to be added and multiplied (`RBF() + Linear()`); the classes to derive
a new one from (`Kernel`, `LatentKernel`), and a check of it."""

from mpigp.kernels.base import Kernel, LatentKernel
from mpigp.kernels.checking import WrongKernel, check
from mpigp.kernels.expression import (
    RBF,
    Bias,
    Expression,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
)

__all__ = [
    "RBF",
    "Bias",
    "Expression",
    "Kernel",
    "LatentKernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "RationalQuadratic",
    "WrongKernel",
    "check",
]
