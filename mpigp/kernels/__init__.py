"""Covariance functions: what a new one states (`Kernel`, `LatentKernel`), and a check of it."""

from mpigp.kernels.checking import WrongKernel, check
from mpigp.kernels.kernel import Kernel, LatentKernel

__all__ = ["Kernel", "LatentKernel", "WrongKernel", "check"]
