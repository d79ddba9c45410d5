"""Kernels by their names: `rbf`, `matern52`, or `package.module:Name` of anybody's."""

from __future__ import annotations

from importlib import import_module

from mpigp.errors import InputError
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.base import Kernel
from mpigp.kernels.matern import Matern52
from mpigp.kernels.numpy_backend import NumpyBackend
from mpigp.kernels.rbf import RBF

DEFAULT = RBF.name
BUILT_IN = ("rbf", "matern52")


def backend_of(name: str) -> KernelBackend:
    """Return the loops of a kernel; a name that leads to none is refused, and the error says why."""
    if name == DEFAULT:
        return RBF()
    return NumpyBackend(Matern52() if name == "matern52" else find(name), name)


def find(name: str) -> Kernel:
    """Return the kernel that `package.module:Name` names: an instance, or a class that takes no arguments."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"is {name!r}: choose among {', '.join(BUILT_IN)}, or name one as package.module:Name")
    try:
        found = getattr(import_module(module), attribute)
        kernel = found() if isinstance(found, type) else found
    except Exception as error:  # whatever a module of somebody else's may raise
        reason = " ".join(str(error).split())
        raise InputError(
            f"is {name!r}: {type(error).__name__}: {reason}: install the module, or put its folder on PYTHONPATH"
        ) from error
    if not isinstance(kernel, Kernel):
        raise InputError(f"is {name!r}: that is no mpigp.kernels.Kernel: derive it from Kernel or LatentKernel")
    return kernel
