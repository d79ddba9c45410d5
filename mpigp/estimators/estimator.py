"""What the estimators share: their data, learning, and model files."""

import copy
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from numbers import Integral
from typing import Any, ClassVar, TypeAlias

import h5py
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from mpigp.data.columns import column_names, listed, storable
from mpigp.data.hdf5 import dataset, h5py_errors
from mpigp.errors import InputError
from mpigp.estimators.sources import ArraySets, over_rows
from mpigp.files.model_file import ModelFile
from mpigp.fit.checkpoint import FittedModel
from mpigp.fit.driver import Driver
from mpigp.fit.loop import Fit, Trace
from mpigp.fit.options import Options, RunOptions, interval
from mpigp.kernels.composition import named_values
from mpigp.kernels.expression import Expression
from mpigp.kernels.registry import is_external
from mpigp.mpi.communicator import raise_on_all_ranks, script_world
from mpigp.mpi.processes import default_threads
from mpigp.mpi.ulfm import finalize_in_time
from mpigp.types import Comm, Floats

Data: TypeAlias = ArrayLike | h5py.Dataset

# Parameters of a run, not of the model.
HERE = ("comm", "threads", "verbose", "checkpoint", "checkpoint_every", "resume", "overwrite", "metrics",
        "callback")  # fmt: skip


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):
    """What the estimators share: their parameters, learning, and model files."""

    _model: ClassVar[str]
    _features: ClassVar[str]  # the columns that are features: "x", or "y" of a GPLVM

    inducing: int = 50
    _: KW_ONLY
    kernel: str | Expression = Options.kernel
    bound: str = Options.bound
    optimizer: str = Options.optimizer
    max_iter: int = Options.max_iter
    tolerance: float = Options.tolerance
    gradient_tolerance: float = Options.gradient_tolerance
    hold: int | None = Options.hold
    fixed: Sequence[str] = ()
    start: str = Options.start
    placement: str = Options.placement
    restarts: int = Options.restarts
    standardize: str = Options.standardize
    jitter: float = Options.jitter
    random_state: Any = Options.seed
    threads: int | None = None
    verbose: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: str | int | None = "10m"
    resume: bool = False
    overwrite: bool = False
    metrics: str | os.PathLike[str] | None = None
    callback: Callable[[Fit], Any] | None = None
    comm: Comm | None = None

    def _comm(self) -> Comm:
        """Return the communicator: after ranks failed during `fit`, that of the ranks that are left."""
        if (left := getattr(self, "_left", None)) is not None:
            return left
        return script_world() if self.comm is None else self.comm

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_left"}

    def _threads(self) -> int:
        return default_threads(os.environ) if self.threads is None else self.threads

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted copy on the same communicator, which is not a thing to copy."""
        without = copy.copy(self)
        without.comm = None
        return super(Estimator, without).__sklearn_clone__().set_params(comm=self.comm)

    def _inputs(self, X: Any, reset: bool = False, missing: bool = False) -> Any:
        """Return the data (n, features), an array or a dataset, checked."""
        if not isinstance(X, h5py.Dataset):
            finite = "allow-nan" if missing else True
            return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite)
        checked(X)
        if reset:
            self.n_features_in_ = X.shape[1]
        self._check_names(X, reset)
        if min(X.shape) == 0 or X.shape[1] != self.n_features_in_:
            raise InputError(f"{X.file.filename}: {X.name}: has shape {X.shape}: there must be at least one row, and "
                             f"as many features as in the data of `fit`, {self.n_features_in_}")  # fmt: skip
        return X

    def _check_names(self, X: h5py.Dataset, reset: bool) -> None:
        """Refuse a dataset whose columns have other names than in `fit`, or another order, as scikit-learn does."""
        names, fitted = column_names(X), getattr(self, "feature_names_in_", None)
        if reset and fitted is not None:
            delattr(self, "feature_names_in_")
        if reset and names is not None:
            self.feature_names_in_ = np.array(names, object)
        if not reset and names is not None and fitted is not None and names != list(fitted):
            differ = f"has the columns {listed(names)}, and the data of `fit` had {listed(list(fitted))}"
            raise InputError(f"{X.file.filename}: {X.name}: {differ}: give these in the same order")

    def _options(self, n: int, comm: Comm) -> Options:
        """Return the options of learning from n rows, checked."""
        given = self.get_params(deep=False)
        seed = given["random_state"]
        if not isinstance(seed, Integral):
            seed = comm.bcast(int(check_random_state(seed).randint(2**31)))
        given |= {"model": self._model, "seed": int(seed), "inducing": min(n, self.inducing)}
        given |= {
            "kernel": str(self.kernel),
            "fixed": frozenset(self.fixed),
            "threads": self._threads(),
            "missing": self._model == "gplvm",
        }
        options = Options(**{each.name: given[each.name] for each in fields(Options) if each.name in given})
        options.check()
        return options

    def _run_options(self) -> RunOptions:
        """Return what happens beside the iterations, checked."""
        if self.checkpoint is None and self.resume:
            raise ValueError("resume=True needs a checkpoint: set checkpoint to the path of a model file")
        path, metrics = (None if each is None else os.fspath(each) for each in (self.checkpoint, self.metrics))
        try:
            every = interval(self.checkpoint_every)
        except InputError as error:
            raise ValueError(f"checkpoint_every {error}") from None
        return RunOptions(output=path, checkpoint_every=every, resume=self.resume,
                          overwrite=self.overwrite, metrics=metrics, rows_in_memory="all",
                          progress=sys.stderr if self.verbose else None,
                          callback=self.callback, made_by=" ".join(repr(self).split()))  # fmt: skip

    def _learn(self, X: Any, Y: Any, y_names: list[str] | None = None) -> None:
        """Learn from whole X and Y, which are checked; for a GPLVM X is None, and NaN in Y are missing entries.

        `y_names` are those of the columns of a regression's Y; those of the features are in `feature_names_in_`.
        """
        self._left = None
        comm = self._comm()
        inputs = tuple(each.file.filename for each in (X, Y) if isinstance(each, h5py.Dataset))
        features = getattr(self, "feature_names_in_", None)
        named = {self._features: features, "y": features if X is None else y_names}
        columns = {column: storable("columns", map(str, names)) for column, names in named.items() if names is not None}
        driver = Driver(comm, ArraySets(Y, X, columns).open, self._options(len(Y), comm), self._run_options(), inputs)
        learned: list[FittedModel] = []
        with threadpool_limits(1):  # of BLAS; afterwards it has as many as before
            driver.run(lambda comm, prepared: learned.append(FittedModel.of(comm, prepared, driver.made)))
        if driver.lost:
            comm = self._left = driver.comm
            finalize_in_time()
        self._take(learned[-1])
        if comm.rank == 0 and self.n_iter_ >= self.max_iter:
            warnings.warn(f"stopped after max_iter={self.max_iter} iterations: the bound may not have converged yet",
                          ConvergenceWarning, stacklevel=3)  # fmt: skip

    def _take(self, learned: FittedModel) -> None:
        """Set the attributes of a learned model."""
        self._learned = learned
        with learned.open() as model:
            self.Z_, self.variance_, self.alpha_, self.beta_ = model.parameters()
            self.trace_ = Trace(**model.trace())
            self.posterior_ = model.posterior(str(self.kernel))
            columns = model.columns()
        parameters = self.posterior_.backend.named_parameters(self.Z_.shape[1])
        self.kernel_parameters_ = named_values(parameters, self.alpha_, columns.get("x"))
        names = columns.get(self._features)
        if names is not None and not hasattr(self, "feature_names_in_"):  # a model file's
            self.feature_names_in_ = np.array(names, object)
        self.n_iter_ = len(self.trace_)
        self.bound_ = self.trace_.bound[-1] if self.n_iter_ else float("nan")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file, which the commands of mpigp and `mpigp.load` take; a file at `path` is replaced."""
        check_is_fitted(self)
        comm = self._comm()
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in HERE}
        given |= {"fixed": list(self.fixed), "kernel": str(self.kernel)}
        with raise_on_all_ranks(comm), self._learned.open() as model:
            given |= {"random_state": int(model.attribute("seed"))}
            if comm.rank == 0:
                self._learned.write(path, estimator=json.dumps(given), **self._attributes())
        comm.Barrier()

    def _predicted(self, X: Any) -> tuple[Floats, Floats]:
        """Return means and standard deviations (n, d), noise included, at inputs or latent points X (n, q), checked."""
        threads = self._threads()
        return with_deviations(*over_rows(self._comm(), X, lambda rows: self.posterior_.predict(rows, threads)))

    def _attributes(self) -> dict[str, int]:
        """Return attributes of a model file that the estimator alone knows."""
        return {}

    @classmethod
    def _load(cls, model: ModelFile, comm: Comm | None, kernel: str | None) -> Any:
        """Return the estimator of a model file; a kernel that is not built in is named by the user."""
        written = model.attribute("estimator")
        estimator = cls(comm=comm, kernel=model.kernel(kernel))
        with h5py_errors(f"{model.name}: attribute estimator"):
            given = _given(model) if written is None else dict(json.loads(written))
            known = estimator.get_params(deep=False).keys() - {*HERE, "kernel"}
            estimator.set_params(**{name: value for name, value in given.items() if name in known})
            estimator.set_params(fixed=tuple(map(str, given["fixed"])))
            own = str(given.get("kernel", ""))  # which may name columns
            if own and not is_external(own) and model.is_kernel(own):
                estimator.set_params(kernel=own)
        estimator._take(FittedModel.read(model))
        return estimator


def _given(model: ModelFile) -> dict[str, Any]:
    """Return the parameters of the estimator that would have made a model file of `mpigp fit`."""
    m, q = model.parameters().Z.shape
    given = {"inducing": m, "latent": q, "random_state": int(model.attribute("seed"))}
    given |= {"jitter": float(model.attribute("jitter")), "bound": model.bound}
    options = model.identity() or {"fixed": ""}
    return given | options | {"fixed": [name for name in options["fixed"].split(",") if name]}


def checked(data: Any, name: str = "X", flat: bool = False) -> Any:
    """Return data (n, columns), or (n,) where they may be `flat`, an array or a dataset, checked."""
    if not isinstance(data, h5py.Dataset):
        return check_array(data, ensure_2d=not flat, dtype=np.float64, input_name=name)
    dataset(data.file, data.name, 1 if flat and data.ndim <= 1 else 2, "give a dataset of one row per observation")
    return data


def names_of(data: Any) -> list[str] | None:
    """Return the names of the columns of a dataset, a data frame, or its one column; None where it has none."""
    if isinstance(data, h5py.Dataset):
        return column_names(data) if data.ndim == 2 else None
    single = [getattr(data, "name", None)]  # of a series
    for names in (getattr(data, attribute, single) for attribute in ("columns", "column_names")):
        if len(names) and all(isinstance(name, str) and name for name in names):
            return list(names)
    return None


def with_deviations(mean: Floats, _: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return means and standard deviations (n, d), from variances of each row (n,) or of each entry (n, d)."""
    return mean, np.sqrt(np.broadcast_to(variance[:, None] if variance.ndim == 1 else variance, mean.shape))
