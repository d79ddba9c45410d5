"""What the backends of kernels share that have unit variance and one weight for each input, and are not composed."""

import numpy as np

from mpigp import native
from mpigp.kernels.composition import Parameter
from mpigp.native import Kernel as Points
from mpigp.types import Floats


class SingleKernel:
    """A kernel of unit variance whose parameters are the weights alpha (q,)."""

    unit = True
    composed = False

    points = staticmethod(Points)
    workspace = staticmethod(native.workspace)

    def parameters(self, q: int) -> int:
        return q

    def named_parameters(self, q: int) -> list[Parameter]:
        return []

    def loop_parameters(self, q: int) -> int:
        return q

    def scale(self, alpha: Floats, q: int) -> float:
        return 1.0

    def diagonal(self, mu: Floats, S: Floats | None, alpha: Floats) -> Floats:
        return np.ones(len(mu))

    def largest(self, points: Points, lowest: Floats, highest: Floats) -> float:
        return 1.0

    def parameter_gradient(self, alpha: Floats, raw: Floats, q: int, by_scale: float) -> Floats:
        return raw
