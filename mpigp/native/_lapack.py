"""Import `_algebra` with SciPy's compiled LAPACK, but without the Python modules of scipy.linalg.

`_algebra` takes pointers to the functions of scipy.linalg.cython_blas and cython_lapack. A plain import of these two
extension modules first runs all of scipy.linalg, some 250 files, which every rank would read from a shared disk.
Afterwards nothing is left in sys.modules, so a later import of scipy.linalg is the usual one.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

import scipy

loaded = []
if "scipy.linalg" not in sys.modules:
    folder = str(Path(scipy.__file__).with_name("linalg"))
    for name in ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack"):
        spec = PathFinder.find_spec(name, [folder])
        if spec is not None and spec.loader is not None:  # else it is elsewhere: the plain import finds it
            sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
            loaded.append(name)
try:
    import_module("mpigp.native._algebra")
finally:
    for name in loaded:
        del sys.modules[name]
