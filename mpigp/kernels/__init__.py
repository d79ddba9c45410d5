"""Covariance functions: what a new one states (`Kernel`, `LatentKernel`), and a check of it."""

from mpigp.kernels.base import Kernel, LatentKernel
from mpigp.kernels.checking import WrongKernel, check

__all__ = ["Kernel", "LatentKernel", "WrongKernel", "check"]
