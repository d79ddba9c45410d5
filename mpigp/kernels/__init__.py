"""Covariance functions: the classes to derive a new one from (`Kernel`, `LatentKernel`), and a check of it."""

from mpigp.kernels.base import Kernel, LatentKernel
from mpigp.kernels.checking import WrongKernel, check

__all__ = ["Kernel", "LatentKernel", "WrongKernel", "check"]
