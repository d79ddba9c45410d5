"""The Bayesian GPLVM as an estimator of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from mpigp.data.hdf5 import dataset
from mpigp.estimators.estimator import EXPECTED, Data, Estimator, Floats, for_each_output
from mpigp.estimators.learned import FittedModel
from mpigp.estimators.sources import over_rows
from mpigp.fit.options import Options
from mpigp.gp.embedding import Candidates, Embedding, candidates, embed, reconstruct


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
    kernel : "rbf", or "package.module:Name" of another (docs/kernels.md)
    optimizer, max_iter, tolerance, gradient_tolerance, hold : as in SparseGPRegression
    fixed : names of parameters to hold: "Z", "alpha", "variance", "beta", "mu", "S"
    placement, restarts, standardize, jitter, random_state, threads, verbose, comm : as in SparseGPRegression
    checkpoint, checkpoint_every, resume, metrics, callback : as in SparseGPRegression

    Attributes
    ----------
    embedding_ : (n, latent), means of the training rows' latent points
    embedding_variance_ : (n, latent), their variances
    Z_ : (m, latent), inducing inputs
    alpha_ : (latent,), ARD weights, 1 / lengthscale²: near zero for a dimension that is not needed
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

    latent: int = 2
    init: str = Options.init

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # missing entries
        return tags

    def fit(self, X: Data, y: None = None) -> BayesianGPLVM:
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
        """Return the latent points of rows X (n, d), new ones or not; NaN entries are missing.

        Returns
        -------
        mu : (n, latent), means
        std : (n, latent), standard deviations; only with `return_std`
        """
        found = self._embed(X)
        return (found.mu, np.sqrt(found.S)) if return_std else found.mu

    def inverse_transform(self, X: Data, return_std: bool = False) -> Any:
        """Return what is expected of the data at latent points X (n, latent).

        Returns
        -------
        mean : (n, d)
        std : (n, d), standard deviations of the data, noise included; only with `return_std`
        """
        check_is_fitted(self)
        if isinstance(X, h5py.Dataset):
            dataset(X.file, X.name, 2, EXPECTED)
        else:
            X = check_array(X, dtype=np.float64, input_name="X")
        if X.shape[1] != self.posterior_.q:
            raise ValueError(f"X has {X.shape[1]} columns, and the latent points {self.posterior_.q}: give as many")
        threads = self._threads()
        mean, _, variance = over_rows(self._comm(), X, lambda rows: self.posterior_.predict(rows, threads))
        return (mean, np.sqrt(for_each_output(variance, mean))) if return_std else mean

    def reconstruct(self, X: Data, return_std: bool = False) -> Any:
        """Return all entries of rows X (n, d), of which those that are NaN are missing, as the model sees them.

        Returns
        -------
        mean : (n, d)
        std : (n, d), standard deviations, noise included; only with `return_std`
        """
        check_is_fitted(self)
        X, threads, starts = self._inputs(X, missing=True), self._threads(), self._candidates()
        mean, _, variance = over_rows(
            self._comm(), X, lambda rows: reconstruct(self.posterior_, starts, rows, threads), missing=True
        )
        return (mean, np.sqrt(for_each_output(variance, mean))) if return_std else mean

    def score_samples(self, X: Data) -> Floats:
        """Return the lower bound (n,) of the log density of each row X (n, d), in nats and standardized units.

        It is given what was learned; NaN entries are missing.
        """
        return self._embed(X).bound

    def score(self, X: Data, y: None = None) -> float:
        """Return the mean of `score_samples` over rows X (n, d): the higher, the better the rows are explained."""
        return float(np.mean(self.score_samples(X)))

    def _embed(self, X: Data) -> Embedding:
        check_is_fitted(self)
        X, threads, starts = self._inputs(X, missing=True), self._threads(), self._candidates()
        return Embedding(
            *over_rows(self._comm(), X, lambda rows: embed(self.posterior_, starts, rows, threads), missing=True)
        )

    def _candidates(self) -> Candidates:
        return candidates(self.embedding_, self.embedding_variance_)

    def _take(self, learned: FittedModel) -> None:
        super()._take(learned)
        self.n_features_in_, self._n_features_out = self.posterior_.d, self.posterior_.q
        self.embedding_, self.embedding_variance_ = learned.latent["mu"], learned.latent["S"]
