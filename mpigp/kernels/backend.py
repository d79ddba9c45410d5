"""The interface between a kernel and the models: its sums over the rows of chunks, and gradients of weighted sums.

The RBF kernel has compiled loops (`rbf.py`); any other kernel gets loops in NumPy (`numpy_backend.py`).
"""

from typing import NamedTuple, Protocol

from mpigp.native import Kernel as Points
from mpigp.native import Rows
from mpigp.numerics.reproducible_sum import Summation
from mpigp.numerics.threads import Part, Span
from mpigp.types import Floats


class RowBounds(NamedTuple):
    """Each row's term of the bound: values (n,), and its gradients by mu and S (n, q)."""

    values: Floats
    by_mu: Floats
    by_S: Floats


class KernelBackend(Protocol):
    """A kernel k of unit variance, as models and predictions use it.

    points : Z (m, q) minus their center (q,), the center, and alpha (q,)
    rows : in chunks; a `part` or a `span` of the chunks is the work of one thread
    Methods that add to a part's accumulators return how many sums overflowed. Symmetric matrices are packed: the lower
    triangle, m(m+1)/2 pairs.

    In the bound `rows` each row has a trace term: the statistics sum it, and set its weight w_i in
    `rows.trace_weights`, which the gradient reads (`mpigp.gp.bound.TraceSums`, with s = β σ_f²). Else these are None.

    name : as `--kernel` takes it
    latent : whether it has ψ statistics, which the GPLVM and uncertain inputs need
    factored : whether derivatives hold K as a factor. If so ψ2 is summed without K^½ of its pairs, and weights of pairs
        come with it; and `gram_gradient` takes ∂F/∂K ∘ K. If not, ψ2 and its weights are taken without a factor.
    statistics_summation : how the sums of the first round are kept; in fixed point, if no ψ exceeds 1
    gradient_summation : how those of the second are; in fixed point, if `gradient_limits` bounds them
    """

    name: str
    latent: bool
    factored: bool
    statistics_summation: Summation
    gradient_summation: Summation

    def center(self, Z: Floats) -> Floats:
        """Return the point (q,) that is subtracted from all points, to keep digits."""

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        """Return K_mn (m, n)."""

    def gram_gradient(self, weights: Floats, Z: Floats, alpha: Floats) -> tuple[Floats, Floats]:
        """Return the gradients of Z (m, q) and alpha (q,) through K_mm; row m of weights (m, m) gives that of Z_m."""

    def gradient_limits(self, points: Points, lowest: Floats, highest: Floats, weight: float) -> Floats:
        """Return limits (q + q) of the gradients of any Z_m and alpha through the rows, for a total `weight` of
        |∂F/∂ψ| ψ, and rows from `lowest` to `highest` (q,)."""

    def regression_statistics(self, points: Points, rows: Rows, inverse: Floats | None, s: float, part: Part) -> int:
        """Add AAᵀ (packed) and AY (m, d), A = L⁻¹K with `inverse` and A = K without.

        Where rows have trace weights, also the trace sums (2,), of c_i = ‖A_i‖².
        """

    def regression_gradient(self, points: Points, rows: Rows, inverse: Floats | None, matrix: Floats, psi1Y: Floats,
                            fit: Floats, part: Part) -> int:  # fmt: skip
        """Add the gradients of Z (m, q) and alpha (q,) through K_mn, and with `inverse` AE (m, d).

        ∂F/∂K = matrix A + psi1Y Eᵀ, E = Y − Aᵀ fit, with `inverse`; matrix K + psi1Y Yᵀ without. Where rows have trace
        weights w_i, it loses L⁻ᵀ A_i w_i, and Σ w_i A_i A_iᵀ (packed) is added last.
        """

    def regression_moments(self, points: Points, rows: Rows, span: Span, factor: Floats, weights: Floats, mean: Floats,
                           explained: Floats) -> None:  # fmt: skip
        """Set mean (n, d) = K weights and explained (n,) = |factor K|², of a lower triangular factor (m, m)."""

    def gplvm_statistics(self, points: Points, rows: Rows, explained: Floats | None, s: float, part: Part) -> int:
        """Add Σψ2 of each group (packed, groups), Σψ1Y (m, d) and KL (whole nats, the remainder).

        Where rows have trace weights, also the trace sums (2,), of c_i = Σ explained (pairs,) ψ2_i.
        """

    def gplvm_gradient(self, points: Points, rows: Rows, matrix: Floats, psi1Y: Floats, by_mu: Floats, by_S: Floats,
                       part: Part) -> int:  # fmt: skip
        """Add the gradients of Z (m, q) and alpha (q,), and set those of mu and S (n, q).

        matrix : (pairs, groups), each pair counts twice.   psi1Y : (m, d)
        Where rows have trace weights, a last column of the matrix is for them, and Σψ2 with these weights is added too.
        """

    def gplvm_bounds(self, points: Points, rows: Rows, span: Span, matrix: Floats, psi1Y: Floats,
                     out: RowBounds) -> None:  # fmt: skip
        """Set each row's term of the bound, whose bits depend on no other row; the weights are as in the gradient."""

    def gplvm_moments(self, points: Points, rows: Rows, span: Span, weights: Floats, quadratics: Floats, mean: Floats,
                      second: Floats) -> None:  # fmt: skip
        """Set mean (n, d) = ψ1 weights (m, d), and second (n, k), the sums of quadratics (k, pairs) ψ2 over pairs."""
