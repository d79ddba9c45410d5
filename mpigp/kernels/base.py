"""The interface of a new kernel: its formulas, and the gradients of their weighted sums. docs/kernels.md is the guide.

Arrays are NumPy's, float64, and not to be changed. Z (m, q) are inducing points, alpha (q,) positive weights of the
dimensions; `n` rows are few enough that arrays of (n, m, m, q) numbers fit the cache or nearly so. A row must not see
the other rows.
"""

from abc import ABC, abstractmethod

from mpigp.types import Floats

Gradients = tuple[Floats, Floats, Floats, Floats]  # by Z, alpha, mu and S


class Kernel(ABC):
    """A covariance function k(x, x'), symmetric and positive semidefinite, of unit variance: k(x, x) = 1.

    The variance σ_f² is put in by the bound. Its parameters are the weights α_q > 0, one for each dimension. A fit
    starts them at 1 / (variance of the inputs), so they should be like 1 / lengthscale².
    """

    @abstractmethod
    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        """Return K (m, n) between points Z (m, q) and X (n, q): K_mi = k(Z_m, X_i)."""

    @abstractmethod
    def covariance_gradient(self, Z: Floats, X: Floats, alpha: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return the derivatives of Σ_mi w_mi k(Z_m, X_i), for weights (m, n), by Z (m, q) and by alpha (q,).

        X may be Z itself and is held all the same: Σ_i w_mi ∂k(Z_m, X_i)/∂Z_mq and Σ_mi w_mi ∂k(Z_m, X_i)/∂α_q.
        """


class LatentKernel(Kernel):
    """A kernel whose expectations under Gaussian inputs are known, as the GPLVM and uncertain inputs need them.

    ⟨·⟩ is over x ~ N(mu_i, diag S_i), with mu (n, q) and S (n, q) ≥ 0, zero in predictions alone. Each gradient is that
    of a weighted sum, by Z (m, q), alpha (q,), mu (n, q) and S (n, q).
    """

    @abstractmethod
    def psi1(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats) -> Floats:
        """Return ψ1 (n, m): ψ1_im = ⟨k(Z_m, x)⟩."""

    @abstractmethod
    def psi1_gradient(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats, weights: Floats) -> Gradients:
        """Return the derivatives of Σ_im w_im ψ1_im, for weights (n, m), by Z, alpha, mu and S."""

    @abstractmethod
    def psi2(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats) -> Floats:
        """Return ψ2 (n, m, m): ψ2_imm' = ⟨k(Z_m, x) k(Z_m', x)⟩."""

    @abstractmethod
    def psi2_gradient(self, Z: Floats, mu: Floats, S: Floats, alpha: Floats, weights: Floats) -> Gradients:
        """Return the derivatives of Σ_imm' w_imm' ψ2_imm', for symmetric weights (n, m, m), by Z, alpha, mu and S.

        Z_m is in row m and in column m: both count.
        """
