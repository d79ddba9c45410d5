"""The Bayesian GPLVM as an estimator of scikit-learn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mpigp.estimators.estimator import Data, Estimator, checked, with_deviations
from mpigp.estimators.sources import over_rows
from mpigp.fit.checkpoint import FittedModel
from mpigp.fit.options import Options
from mpigp.gp.embedding import Embedding, candidates, embed, reconstruct
from mpigp.types import Floats


@dataclass(eq=False, repr=False, kw_only=True)
class BayesianGPLVM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """The Bayesian Gaussian process latent variable model (Titsias and Lawrence 2010): nonlinear, probabilistic PCA.

    Every rank calls every method with the same whole array, or h5py dataset, and works on its own rows; every rank gets
    the whole result, with the same bits on any number of ranks. Under an MPI with fault tolerance (`mpiexec --with-ft
    ulfm`) `fit` goes on when ranks fail, and later calls use the ranks that are left.

    Parameters
    ----------
    inducing : number of inducing points; data of fewer rows get one per row
    latent : latent dimensions
    init : "pca", "random", or the path of a model file: where the latent points start
    kernel : a sum of rbf, linear and bias, as text ("rbf + linear") or made of mpigp.kernels.RBF and the like; or
        "package.module:Name" of another (docs/kernels.md)
    bound, optimizer, max_iter, tolerance, gradient_tolerance, hold : as in SparseGPRegression
    fixed : names of parameters to hold: "Z", "alpha", "variance", "beta", "mu", "S", and of a composed
        kernel its parts and their parameters, such as "rbf" or "rbf.alpha"
    start, placement, restarts, standardize, jitter, random_state, threads, verbose, comm : as in SparseGPRegression
    checkpoint, checkpoint_every, resume, overwrite, metrics, callback : as in SparseGPRegression

    Attributes
    ----------
    embedding_ : (n, latent), means of the training rows' latent points
    embedding_variance_ : (n, latent), their variances
    Z_ : (m, latent), inducing inputs
    alpha_ : (latent,), ARD weights, 1 / lengthscale²: near zero for a dimension that is not needed; all parameters of a
        composed kernel
    kernel_parameters_ : the parameters of a composed kernel, by name; empty for others
    variance_, beta_, bound_, n_iter_, trace_, posterior_ : as in SparseGPRegression
    n_features_in_, feature_names_in_ : of the data seen by `fit`; the names where it had some

    Examples
    --------
    >>> import numpy as np
    >>> from mpigp import BayesianGPLVM
    >>> rng = np.random.default_rng(0)
    >>> t = np.linspace(0, 3, 100)
    >>> Y = np.column_stack([np.sin(t), np.cos(t), t]) + 0.01 * rng.normal(size=(100, 3))
    >>> model = BayesianGPLVM(inducing=10, latent=1)
    >>> model.fit_transform(Y).shape
    (100, 1)
    >>> bool(np.abs(model.inverse_transform(model.transform(Y)) - Y).max() < 0.1)
    True
    """

    _model = "gplvm"
    _features = "y"

    latent: int = 2
    init: str = Options.init

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # missing entries
        return tags

    def fit(self, X: Data, y: None = None) -> "BayesianGPLVM":
        """Learn from data X (n, d), the tutorial's Y, of which NaN entries are missing; y is ignored."""
        X = self._inputs(X, reset=True, missing=True)
        if self.init == "pca" and self.latent > self.n_features_in_:
            raise ValueError(f"latent={self.latent} is more than the data have principal components "
                             f"(n_features = {self.n_features_in_}): lower latent, or set init='random'")  # fmt: skip
        self._learn(None, X)
        return self

    def fit_transform(self, X: Data, y: None = None) -> Floats:
        """Learn from data X (n, d), and return `embedding_` (n, latent).

        That is the optimum of all rows together; `transform` looks for each row's own, given what was learned, and
        agrees with it up to the tolerance of `fit`.
        """
        return self.fit(X).embedding_

    def transform(self, X: Data, return_std: bool = False) -> Any:
        """Return the means (n, latent) of the latent points of rows X (n, d), new ones or not; NaN entries are missing.

        With `return_std` also their standard deviations (n, latent).
        """
        latent = self._embed(X)
        return (latent.mu, np.sqrt(latent.S)) if return_std else latent.mu

    def inverse_transform(self, X: Data, return_std: bool = False) -> Any:
        """Return the mean (n, d) of the data at latent points X (n, latent).

        With `return_std` also their standard deviations (n, d), noise included.
        """
        check_is_fitted(self)
        X = checked(X)
        if X.shape[1] != self.posterior_.q:
            raise ValueError(f"X has {X.shape[1]} columns, and the latent points {self.posterior_.q}: give as many")
        mean, std = self._predicted(X)
        return (mean, std) if return_std else mean

    def reconstruct(self, X: Data, return_std: bool = False) -> Any:
        """Return the mean (n, d) of all entries of rows X (n, d), of which those that are NaN are missing.

        With `return_std` also their standard deviations (n, d), noise included.
        """
        mean, std = with_deviations(*self._over_rows(reconstruct, X))
        return (mean, std) if return_std else mean

    def score_samples(self, X: Data) -> Floats:
        """Return the lower bound (n,) of the log density of each row X (n, d), in nats and standardized units.

        It is given what was learned; NaN entries are missing.
        """
        return self._embed(X).bound

    def score(self, X: Data, y: None = None) -> float:
        """Return the mean of `score_samples` over rows X (n, d): the higher, the better the rows are explained."""
        return float(np.mean(self.score_samples(X)))

    def _embed(self, X: Data) -> Embedding:
        return Embedding(*self._over_rows(embed, X))

    def _over_rows(self, work: Any, X: Data) -> list[Floats]:
        """Return what `work`, embed or reconstruct, makes of rows X (n, d)."""
        check_is_fitted(self)
        X, threads = self._inputs(X, missing=True), self._threads()
        starts = candidates(self.embedding_, self.embedding_variance_)
        return over_rows(self._comm(), X, lambda rows: work(self.posterior_, starts, rows, threads), missing=True)

    def _take(self, learned: FittedModel) -> None:
        super()._take(learned)
        self.n_features_in_, self._n_features_out = self.posterior_.d, self.posterior_.q
        self.embedding_, self.embedding_variance_ = learned.latent["mu"], learned.latent["S"]
