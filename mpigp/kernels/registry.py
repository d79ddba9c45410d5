"""The kernels by their names: an expression of built-in ones (`rbf`, `rbf + linear`), or `package.module:Name`."""

import re
from functools import lru_cache
from importlib import import_module
from typing import cast

from mpigp.errors import InputError
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.base import Kernel
from mpigp.kernels.compiled import Compiled
from mpigp.kernels.composition import parameter_names
from mpigp.kernels.expression import parse
from mpigp.kernels.latent_backend import LatentBackend
from mpigp.kernels.numpy_backend import NumpyBackend
from mpigp.kernels.rbf import RBF

DEFAULT = RBF.name


def backend_of(name: str, latent: bool = False) -> KernelBackend:
    """Return the backend of a kernel, for inputs that are uncertain (latent) or not; a name that leads to none is
    refused, and the error says why."""
    if not is_external(name):
        return _built_in(name, latent)
    backend = NumpyBackend(find(name), name)
    if latent and not backend.latent:
        raise InputError(f"is {name!r}, which has no psi statistics: it serves regression alone")
    return backend


@lru_cache(maxsize=64)
def _built_in(name: str, latent: bool) -> KernelBackend:
    expression = parse(name)
    if latent:
        expression.check_latent()
    if str(expression) == DEFAULT:
        return RBF()
    return LatentBackend(expression) if latent else cast(KernelBackend, Compiled(expression))  # its ψ are never needed


def is_external(name: str) -> bool:
    """Return whether a name is `package.module:Name`: of a kernel that is not built in, whose module is imported."""
    return re.fullmatch(r"[^\W\d][\w.]*:\w+", name) is not None


def canonical(name: str, q: int, columns: list[str] | None) -> str:
    """Return the name of a kernel with its columns as numbers, of inputs whose q columns may have names."""
    return name if is_external(name) else str(parse(name).resolve(q, columns))


def parameter_count(name: str, q: int) -> int:
    """Return the number of parameters of a kernel, for inputs of q columns; the module of another's is not imported."""
    return q if is_external(name) else backend_of(name).parameters(q)


def names_to_hold(name: str) -> list[str]:
    """Return the names by which parameters of a composed kernel can be held; none of other kernels."""
    return [] if is_external(name) else parameter_names(parse(name))


def find(name: str) -> Kernel:
    """Return the kernel that `package.module:Name` names: an instance, or a class that takes no arguments."""
    module, _, attribute = name.partition(":")
    try:
        kernel = getattr(import_module(module), attribute)
        kernel = kernel() if isinstance(kernel, type) else kernel
    except Exception as error:  # the imported module may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        remedy = "install the module, or put its folder on PYTHONPATH"
        raise InputError(f"is {name!r}: {reason}: {remedy}") from error
    if not isinstance(kernel, Kernel):
        raise InputError(f"is {name!r}: that is no mpigp.kernels.Kernel: derive it from Kernel or LatentKernel")
    return kernel
