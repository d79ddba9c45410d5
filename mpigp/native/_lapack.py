"""Import `_algebra` with SciPy's compiled LAPACK, but without the Python modules of scipy.linalg.

`_algebra` takes pointers to the functions of scipy.linalg.cython_blas and cython_lapack. A plain import of these two
extension modules first runs all of scipy.linalg, some 250 files, which every rank would read from a shared disk.
Afterwards nothing is left in sys.modules, so a later import of scipy.linalg is the usual one.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

import scipy


@contextmanager
def extensions_alone(*names: str) -> Iterator[None]:
    """Make these extension modules of scipy.linalg importable within the block without their package."""
    loaded = []
    if "scipy.linalg" not in sys.modules:
        folder = str(Path(scipy.__file__).with_name("linalg"))
        for name in names:
            spec = PathFinder.find_spec(f"scipy.linalg.{name}", [folder])
            if spec is None or spec.loader is None:
                continue  # it is elsewhere: the plain import finds it
            module = sys.modules[spec.name] = module_from_spec(spec)
            spec.loader.exec_module(module)
            loaded.append(spec.name)
    try:
        yield
    finally:
        for name in loaded:
            del sys.modules[name]


with extensions_alone("cython_blas", "cython_lapack"):
    import_module("mpigp.native._algebra")
