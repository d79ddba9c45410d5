"""Sparse Gaussian process regression and the Bayesian GPLVM, distributed over MPI."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing typing would double the time of `mpigp --version`
if TYPE_CHECKING:
    from typing import Any

    from mpigp.estimators import BayesianGPLVM, SparseGPRegression, load

__version__ = "0.1.0"
__all__ = ["BayesianGPLVM", "SparseGPRegression", "load"]


def __getattr__(name: str) -> Any:
    """Import the estimators on first use: they need scikit-learn, which the commands do not."""
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
