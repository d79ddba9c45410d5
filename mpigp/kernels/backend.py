"""What the program needs of a kernel: its sums over the rows of chunks, and gradients contracted with given weights.

The RBF kernel has compiled loops (`rbf.py`); any other kernel gets loops in NumPy (`chunkwise.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mpigp import native
from mpigp.numerics.threads import Part
from mpigp.types import Floats, Words


class KernelBackend(ABC):
    """A kernel k of unit variance, as models and predictions use it.

    points : native.Kernel, Z (m, q) less their centre (q,), the centre, and alpha (q,)
    rows : native.Rows, in chunks; a `part` of them, or the chunks [first, last), are the work of one thread, with a
        workspace
    Methods that add to a part's words return how many sums did not fit. Symmetric matrices are packed: the lower
    triangle, m(m+1)/2 pairs.

    name : as `--kernel` takes it
    latent : whether it has ψ statistics, which the GPLVM and uncertain inputs need
    factored : whether derivatives hold K as a factor. If so ψ2 is summed without K^½ of its pairs, and weights of pairs
        come with it; and `gram_gradient` takes ∂F/∂K ∘ K. If not, ψ2 is summed as it is, and weights come as they are.
    gradient_words : words of each sum of the second round
    """

    name: str
    latent: bool
    factored: bool
    gradient_words: int

    @abstractmethod
    def centre(self, Z: Floats) -> Floats:
        """Return what to take from all points (q,), to keep digits."""

    @abstractmethod
    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        """Return K_mn (m, n)."""

    def gram(self, Z: Floats, alpha: Floats) -> Floats:
        """Return K_mm (m, m)."""
        return self.covariance(Z, Z, alpha)

    @abstractmethod
    def gram_gradient(self, weights: Floats, Z: Floats, alpha: Floats) -> tuple[Floats, Floats]:
        """Return the gradients of Z (m, q) and alpha (q,) through K_mm; row m of weights (m, m) gives that of Z_m."""

    @abstractmethod
    def gradient_limits(self, points: native.Kernel, lowest: Floats, highest: Floats, weight: float) -> Floats:
        """Return limits (q + q) of the gradients of any Z_m and alpha through the rows, for a total `weight` of
        |∂F/∂ψ| ψ, and rows from `lowest` to `highest` (q,)."""

    @abstractmethod
    def gradient_sums(self, words: Words, scale: Floats) -> Floats:
        """Return the sums of the second round from their words."""

    @abstractmethod
    def regression_statistics(
        self, points: native.Kernel, rows: native.Rows, inverse: Floats | None, part: Part
    ) -> int:
        """Add AAᵀ (packed) and AY (m, d), A = L⁻¹K with `inverse` and A = K without."""

    @abstractmethod
    def regression_gradient(
        self,
        points: native.Kernel,
        rows: native.Rows,
        inverse: Floats | None,
        matrix: Floats,
        psi1Y: Floats,
        fit: Floats,
        part: Part,
    ) -> int:
        """Add the gradients of Z (m, q) and alpha (q,) through K_mn, and with `inverse` AE (m, d).

        ∂F/∂K = matrix A + psi1Y Eᵀ, E = Y − Aᵀ fit, with `inverse`; matrix K + psi1Y Yᵀ without.
        """

    @abstractmethod
    def regression_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        factor: Floats,
        weights: Floats,
        mean: Floats,
        explained: Floats,
    ) -> None:
        """Set mean (n, d) = K weights and explained (n,) = |factor K|², of a lower triangular factor (m, m)."""

    @abstractmethod
    def gplvm_statistics(self, points: native.Kernel, rows: native.Rows, part: Part) -> int:
        """Add Σψ2 of each group (packed, groups), Σψ1Y (m, d) and KL (whole nats, the rest)."""

    @abstractmethod
    def gplvm_gradient(
        self,
        points: native.Kernel,
        rows: native.Rows,
        matrix: Floats,
        psi1Y: Floats,
        by_mu: Floats,
        by_S: Floats,
        part: Part,
    ) -> int:
        """Add the gradients of Z (m, q) and alpha (q,), and set those of mu and S (n, q).

        matrix : (pairs, groups), each pair counts twice.   psi1Y : (m, d)
        """

    @abstractmethod
    def gplvm_bounds(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        matrix: Floats,
        psi1Y: Floats,
        by_mu: Floats,
        by_S: Floats,
        values: Floats,
    ) -> None:
        """Set what each row adds to the bound (n,), and the gradients of mu and S; no row's bits depend on others."""

    @abstractmethod
    def gplvm_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        weights: Floats,
        quadratics: Floats,
        mean: Floats,
        second: Floats,
    ) -> None:
        """Set mean (n, d) = ψ1 weights (m, d), and second (n, k), the sums of quadratics (k, pairs) ψ2 over pairs."""
