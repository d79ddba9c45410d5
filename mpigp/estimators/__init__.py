"""The models as estimators of scikit-learn, on one process or on all ranks of a communicator."""

import os

from mpigp.errors import InputError
from mpigp.estimators.gplvm import BayesianGPLVM
from mpigp.estimators.regression import SparseGPRegression
from mpigp.files.model_file import open_model
from mpigp.types import Comm

__all__ = ["BayesianGPLVM", "SparseGPRegression", "load"]


def load(
    path: str | os.PathLike[str], comm: Comm | None = None, kernel: str | None = None
) -> SparseGPRegression | BayesianGPLVM:
    """Return the fitted estimator of a model file, which `mpigp fit` or an estimator's `save` wrote.

    Its mpi4py communicator is `comm`; None is for all ranks (MPI.COMM_WORLD). A file does not decide what is imported:
    where its kernel is not built in, `kernel` must name it.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import mpigp
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = mpigp.SparseGPRegression(inducing=5).fit(X, np.sin(X[:, 0]))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.h5")
    >>> model.save(path)
    >>> bool((mpigp.load(path).predict(X) == model.predict(X)).all())
    True
    """
    with open_model(path) as model:
        kind = {"regression": SparseGPRegression, "gplvm": BayesianGPLVM}[model.kind]
        if not model.learned:
            raise InputError(f"{path}: is no learned model: give a file that `mpigp fit` or `save` wrote")
        return kind._load(model, comm, kernel)
