"""Sparse GP regression as an estimator of scikit-learn."""

from typing import Any

from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from mpigp.estimators.estimator import Data, Estimator, checked, names_of
from mpigp.fit.checkpoint import FittedModel


class SparseGPRegression(RegressorMixin, MultiOutputMixin, Estimator):
    """Sparse Gaussian process regression: a GP learned through inducing points (Titsias 2009).

    Every rank calls every method with the same whole array, or h5py dataset, and works on its own rows; every rank gets
    the whole result, with the same bits on any number of ranks. Under an MPI with fault tolerance (`mpiexec --with-ft
    ulfm`) `fit` goes on when ranks fail, and later calls use the ranks that are left.

    Parameters
    ----------
    inducing : number of inducing points; data of fewer rows get one per row
    kernel : an expression, as text ("rbf + linear") or made of mpigp.kernels.RBF and the like; or "package.module:Name"
        of another (docs/kernels.md)
    bound : the evidence lower bound: "titsias", or a tighter one, "sphere" or "rows" (docs/choosing.md)
    optimizer : "lbfgs", "scg" or "gd"
    max_iter : iterations at most
    tolerance : relative change of the bound to stop at
    gradient_tolerance : norm of the gradient to stop at
    hold : iterations for which the kernel's variance and the noise are held at the start (None: the model's default)
    fixed : names of parameters to hold: "Z", "alpha", "variance", "beta", and of a composed kernel
        its parts and their parameters, such as "rbf" or "rbf.alpha"
    start : "auto" tries several starts of a regression, on few rows at first; "single" makes one, on all rows
    placement : of the inducing points at the start: "random" or "greedy" among the rows, "kmeans", or "auto"
    restarts : starts to try, of which the best goes on
    standardize : "scale" the columns of X and y, "center" them alone, or "none"
    jitter : added to the diagonal of the kernel matrix, per unit of variance
    random_state : int, RandomState or None: the command line's `--seed`
    threads : of a rank; None for those that Slurm gave it, or one
    verbose : 1 shows the iterations on standard error
    checkpoint : path of a model file that `fit` writes on the way and at its end; None for none
    checkpoint_every : between two checkpoints: iterations (50), or minutes ("10m"); None for the last one alone
    resume : continue from the checkpoint, where there is one, instead of starting anew
    overwrite : replace an older model at `checkpoint`
    metrics : path of a file for one JSON object per iteration
    callback : called on every rank after each iteration with the fit (its iteration, bound, trace); True stops it
    comm : mpi4py communicator; None for all ranks (MPI.COMM_WORLD)

    Attributes
    ----------
    Z_ : (m, q), inducing inputs, standardized as X was
    alpha_ : (q,), ARD weights, 1 / lengthscale², of standardized inputs; all parameters of a composed kernel
    kernel_parameters_ : the parameters of a composed kernel, by name; empty for others
    variance_ : the kernel's, of standardized outputs
    beta_ : precision of the noise, of standardized outputs
    bound_ : the evidence lower bound, in nats; NaN where no iteration was made
    n_iter_ : iterations made
    trace_ : bound, gradient_norm, seconds and evaluations, one entry per iteration
    posterior_ : mpigp.gp.posterior.Posterior, what predictions come from
    n_features_in_, feature_names_in_ : of the X seen by `fit`; the names where it had some

    Examples
    --------
    >>> import numpy as np
    >>> from mpigp import SparseGPRegression
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = SparseGPRegression(inducing=10).fit(X, y)
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> print(f"{mean[0]:.2f}")
    1.00
    >>> bool(std[0] < 0.01)
    True
    """

    _model = "regression"
    _features = "x"

    def fit(self, X: Data, y: Data) -> "SparseGPRegression":
        """Learn from inputs X (n, q) and outputs y (n,) or (n, d)."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        X = self._inputs(X, reset=True)
        names = names_of(y)
        y = checked(y, "y", flat=True)
        check_consistent_length(X, y)
        self._learn(X, y, names)
        self._flat = y.ndim == 1
        return self

    def predict(self, X: Data, return_std: bool = False) -> Any:
        """Return the mean of the outputs at inputs X (n, q), of shape (n,) or (n, d) as y was.

        With `return_std` also their standard deviations of the same shape, noise included.
        """
        check_is_fitted(self)
        mean, std = self._predicted(self._inputs(X))
        if self._flat:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def _attributes(self) -> dict[str, int]:
        return {"y_ndim": 1 if self._flat else 2}

    def _take(self, learned: FittedModel) -> None:
        super()._take(learned)
        self.n_features_in_ = self.posterior_.q
        with learned.open() as model:
            self._flat = model.attribute("y_ndim", 2) == 1
