"""The compiled loops of regression, which the backends of all built-in kernels share."""

from mpigp import native
from mpigp.kernels.backend import Adjoints
from mpigp.native import Kernel as Points
from mpigp.native import Rows
from mpigp.numerics.reproducible_sum import FixedPoint, Summation
from mpigp.numerics.threads import Part
from mpigp.types import Floats


class RegressionLoops:
    """Sums over rows and their gradients, by mpigp.native; bounds of all of them are known."""

    statistics_summation: Summation = FixedPoint(1)
    gradient_summation: Summation = FixedPoint(2)

    regression_statistics = staticmethod(native.regression_statistics)
    regression_moments = staticmethod(native.regression_moments)

    def regression_gradient(self, points: Points, rows: Rows, inverse: Floats | None, weights: Adjoints,
                            part: Part) -> int:  # fmt: skip
        matrix, psi1Y, fit, psi0, _ = weights
        by_diagonal = psi0[0] if len(psi0) else 0.0
        return int(native.regression_gradient(points, rows, inverse, matrix, psi1Y, fit, by_diagonal, part))
