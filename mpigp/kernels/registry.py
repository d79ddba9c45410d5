"""The kernels by their names: `rbf`, `matern52`, or `package.module:Name` of a kernel outside mpigp."""

from importlib import import_module

from mpigp.errors import InputError
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.base import Kernel
from mpigp.kernels.matern import Matern52
from mpigp.kernels.numpy_backend import NumpyBackend
from mpigp.kernels.rbf import RBF

DEFAULT = RBF.name
BACKENDS: dict[str, KernelBackend] = {DEFAULT: RBF(), "matern52": NumpyBackend(Matern52(), "matern52")}


def backend_of(name: str) -> KernelBackend:
    """Return the backend of a kernel; a name that leads to none is refused, and the error says why."""
    return BACKENDS.get(name) or NumpyBackend(find(name), name)


def find(name: str) -> Kernel:
    """Return the kernel that `package.module:Name` names: an instance, or a class that takes no arguments."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"is {name!r}: choose among {', '.join(BACKENDS)}, or name one as package.module:Name")
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
