"""Optimizers over vectors that are spread over ranks, for any objective."""

from collections.abc import Callable
from typing import Any, Protocol

from mpigp.fit.optimizers.gd import GradientDescent
from mpigp.fit.optimizers.lbfgs import LBFGS
from mpigp.fit.optimizers.scg import SCG
from mpigp.mpi.vectors import MultiVector, Objective


class Optimizer(Protocol):
    """Minimizes an objective, whose value is the same on every rank."""

    objective: Objective
    point: MultiVector
    value: float
    evaluations: int
    rounding: float  # the error of the objective's values, which some can allow for

    @property
    def gradient_norm(self) -> float: ...

    def step(self) -> bool:
        """Make one iteration, whose last evaluation is at the new point; False where no step lowers the value."""

    def vectors(self) -> dict[str, MultiVector]:
        """Return the vectors that an exact continuation needs, by name."""

    def numbers(self) -> dict[str, Any]:
        """Return the small arrays that an exact continuation needs, by name."""

    def restore(self, numbers: dict[str, Any]) -> None:
        """Continue from these numbers; the vectors have been put into `vectors()` already."""


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"lbfgs": LBFGS, "scg": SCG, "gd": GradientDescent}
