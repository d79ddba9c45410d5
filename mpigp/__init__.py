"""Sparse Gaussian process regression and the Bayesian GPLVM, distributed over MPI."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpigp.estimators import BayesianGPLVM, SparseGPRegression, load

__version__ = "0.1.0"
__all__ = ["BayesianGPLVM", "SparseGPRegression", "load"]


def __getattr__(name: str) -> Any:
    """Import the estimators when one is asked for: they need scikit-learn, and the commands do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from mpigp import estimators
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError(f"mpigp.{name} needs scikit-learn: pip install 'mpigp[sklearn]'") from None
    return getattr(estimators, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
