"""The interface between a kernel and the models: its sums over the rows of chunks, and gradients of weighted sums.

The RBF kernel alone has compiled loops for everything (`rbf.py`), as have other built-in kernels and their sums and
products for regression (`compiled.py`); any other kernel gets loops in NumPy (`numpy_backend.py`).
"""

from typing import NamedTuple, Protocol

from mpigp.kernels.composition import Parameter
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


class Adjoints(NamedTuple):
    """The derivatives of the bound by the statistics, which are the weights of each rank's rows.

    matrix : (m, m) in regression, or of ψ2's pairs (m(m+1)/2, groups) in the GPLVM; in the bound `rows` of the GPLVM
        with a last column, which each row's w_i multiplies
    psi1Y : (m, d), ∂F/∂(Σψ1Y)
    fit : (m, d) with the residuals E = Y − Aᵀ fit of regression; used where its blocks are whitened
    psi0 : (groups,), ∂F/∂ψ0; empty unless the kernel is composed
    limit : a bound of Σ |∂F/∂ψ| ψ over all rows
    """

    matrix: Floats
    psi1Y: Floats
    fit: Floats
    psi0: Floats
    limit: float


class KernelBackend(Protocol):
    """A kernel k of scale one, as models and predictions use it.

    alpha : (p,), its parameters; the model's kernel is `variance` times `scale` times k
    points : Z (m, q) minus their center (q,), the center, and alpha
    rows : in chunks; a `part` or a `span` of the chunks is the work of one thread
    Methods that add to a part's accumulators return how many sums overflowed. Symmetric matrices are packed: the lower
    triangle, m(m+1)/2 pairs.

    In the bound `rows` each row has a trace term: the statistics sum it, and set its weight w_i in
    `rows.trace_weights`, which the gradient reads (`mpigp.gp.bound.TraceSums`, with s = β σ_f²). Else these are None.

    name : as `--kernel` takes it
    unit : whether k(x, x) = 1.   composed : whether its parts have variances among the parameters
    latent : whether it has ψ statistics, which the GPLVM and uncertain inputs need
    factored : whether derivatives hold K as a factor. If so ψ2 is summed without K^½ of its pairs, and weights of pairs
        come with it; and `gram_gradient` takes ∂F/∂K ∘ K. If not, ψ2 and its weights are taken without a factor.
    statistics_summation : how the sums of the first round are kept; in fixed point, if no ψ exceeds 1
    gradient_summation : how those of the second are; in fixed point, if `gradient_limits` bounds them
    """

    name: str
    unit: bool
    composed: bool
    latent: bool
    factored: bool
    statistics_summation: Summation
    gradient_summation: Summation

    def parameters(self, q: int) -> int:
        """Return p, the number of parameters for inputs of q columns."""

    def named_parameters(self, q: int) -> list[Parameter]:
        """Return the parameters of a composed kernel, with their names; none of others, whose parameters are alpha."""

    def loop_parameters(self, q: int) -> int:
        """Return how many parameters the loops have; `parameter_gradient` takes their gradients to those of alpha."""

    def scale(self, alpha: Floats, q: int) -> float:
        """Return the scale: 1, or that of all parts of a composed kernel."""

    def workspace(self, m: int, q: int, d: int, groups: int = 1, matrices: int = 1) -> int:
        """Return the doubles of workspace that a thread needs."""

    def center(self, Z: Floats) -> Floats:
        """Return the point (q,) that is subtracted from all points, to keep digits."""

    def points(self, Z: Floats, center: Floats, alpha: Floats) -> Points:
        """Return inducing points Z + center, Z (m, q), as the loops take them."""

    def gram(self, Z: Floats, center: Floats, alpha: Floats) -> Floats:
        """Return K_mm (m, m) of the points Z + center, symmetric."""

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        """Return K_mn (m, n)."""

    def diagonal(self, mu: Floats, S: Floats | None, alpha: Floats) -> Floats:
        """Return ⟨k(x, x)⟩ (n,) of rows with means mu and variances S (n, q), or none."""

    def largest(self, points: Points, lowest: Floats, highest: Floats) -> float:
        """Return what no entry of K exceeds in regression, for rows from `lowest` to `highest` (q,); at least 1."""

    def gram_gradient(self, weights: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return the gradients of Z (m, q) and the loops' parameters through K_mm; row m of weights (m, m) gives that
        of Z_m."""

    def parameter_gradient(self, alpha: Floats, raw: Floats, q: int, by_scale: float) -> Floats:
        """Return the gradient (p,) of alpha, from that of the loops' parameters and that of the scale."""

    def gradient_limits(self, points: Points, lowest: Floats, highest: Floats, weight: float) -> Floats:
        """Return limits of the gradients of any Z_m (q,) and, behind them, of the loops' parameters through the rows,
        for a total `weight` of |∂F/∂ψ| ψ, and rows from `lowest` to `highest` (q,)."""

    def regression_statistics(self, points: Points, rows: Rows, inverse: Floats | None, s: float, part: Part) -> int:
        """Add AAᵀ (packed) and AY (m, d), A = L⁻¹K with `inverse` and A = K without.

        Where rows have trace weights, also the trace sums (2,), of c_i = ‖A_i‖²; last, unless `unit`, Σ k(x_i, x_i).
        """

    def regression_gradient(self, points: Points, rows: Rows, inverse: Floats | None, weights: Adjoints,
                            part: Part) -> int:  # fmt: skip
        """Add the gradients of Z (m, q) and the loops' parameters through K_mn and, where these are those of a composed
        kernel, through k(x_i, x_i); and with `inverse` AE (m, d).

        ∂F/∂K = matrix A + psi1Y Eᵀ, E = Y − Aᵀ fit, with `inverse`; matrix K + psi1Y Yᵀ without. Where rows have trace
        weights w_i, it loses L⁻ᵀ A_i w_i, psi0 gains w_i/2, and Σ w_i A_i A_iᵀ (packed) is added last.
        """

    def regression_moments(self, points: Points, rows: Rows, span: Span, factor: Floats, weights: Floats, mean: Floats,
                           explained: Floats) -> None:  # fmt: skip
        """Set mean (n, d) = K weights and explained (n,) = |factor K|², of a lower triangular factor (m, m)."""

    def gplvm_statistics(self, points: Points, rows: Rows, explained: Floats | None, s: float, part: Part) -> int:
        """Add Σψ2 of each group (packed, groups), Σψ1Y (m, d) and KL (whole nats, the remainder).

        Where rows have trace weights, also the trace sums (2,), of c_i = Σ explained (pairs,) ψ2_i; last, unless
        `unit`, ψ0 = Σ⟨k(x_i, x_i)⟩ of each group (groups,).
        """

    def gplvm_gradient(self, points: Points, rows: Rows, weights: Adjoints, by_mu: Floats, by_S: Floats,
                       part: Part) -> int:  # fmt: skip
        """Add the gradients of Z (m, q) and the loops' parameters, and set those of mu and S (n, q).

        Where rows have trace weights w_i, a last column of `weights.matrix` is for them, `weights.psi0` (unless `unit`)
        gains w_i/2, and Σψ2 with these weights is added too.
        """

    def gplvm_bounds(self, points: Points, rows: Rows, span: Span, matrix: Floats, psi1Y: Floats,
                     out: RowBounds) -> None:  # fmt: skip
        """Set each row's term of the bound, whose bits depend on no other row; the weights are as in the gradient."""

    def gplvm_moments(self, points: Points, rows: Rows, span: Span, weights: Floats, quadratics: Floats, mean: Floats,
                      second: Floats) -> None:  # fmt: skip
        """Set mean (n, d) = ψ1 weights (m, d), and second (n, k), the sums of quadratics (k, pairs) ψ2 over pairs."""
