"""A Spack package of mpigp, for a repository of the site's own; see README.md beside it."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMpigp(PythonPackage):
    """Sparse Gaussian process regression and the Bayesian GPLVM over MPI, with the same bits on any number of ranks."""

    license("BSD-3-Clause")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@0.10:", type="build")
    depends_on("py-cython@3:", type="build")

    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("py-scipy@1.11:", type=("build", "run"))
    depends_on("py-numpy@1.25:", type="run")
    depends_on("py-h5py@3.8:", type="run")
    depends_on("py-mpi4py@4:", type="run")
    depends_on("py-threadpoolctl@3.1:", type="run")
    depends_on("py-tqdm@4.60:", type="run")
    depends_on("py-tomli@2:", type="run", when="^python@:3.10")
