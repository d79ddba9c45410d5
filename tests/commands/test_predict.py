"""Predictions: equal to the exact GP where they must be, in the data's units, and from the model file alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from tests.support.calling import command, predict, read, widened, write

N, Q, D = 40, 2, 2
STANDARDISED = ("scale", "center", "none")
FIT = ["--model", "regression", "--inducing", N, "--fixed", "Z", "--jitter", 1e-10, "--hold", 5, "--max-iter", 25]


class Data(NamedTuple):
    """Rows to learn from, X (n, q) and Y (n, d), far from the origin and in units of their own."""

    X: np.ndarray
    Y: np.ndarray


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(11)
    X = rng.uniform(-2, 2, size=(N, Q))
    Y = np.sin(1.5 * X @ rng.normal(size=(Q, D))) + 0.1 * rng.normal(size=(N, D))
    return Data(X * [1.5, 0.8] + [10.0, -4.0], Y * [2.0, 0.7] + [-1.0, 0.5])


class Exact(NamedTuple):
    """The GP of the training rows without any inducing points, by the formulas of a textbook.

    X and Y are standardised as the model file says; `mean` and `covariance` are in the data's units.
    """

    X: np.ndarray
    Y: np.ndarray
    file: dict[str, np.ndarray]

    @classmethod
    def of(cls, model: Path, data: Data) -> Exact:
        found = read(model)
        X, Y = [
            (values - found.get(f"standardize/{name}_mean", 0.0)) / found.get(f"standardize/{name}_scale", 1.0)
            for name, values in (("x", data.X), ("y", data.Y))
        ]
        return cls(X, Y, found)

    @property
    def scale(self) -> np.ndarray:
        """One unit of each output in the data's units, shape (d,)."""
        return np.broadcast_to(self.file.get("standardize/y_scale", 1.0), self.Y.shape[1])

    @property
    def centre(self) -> np.ndarray:
        """The outputs far from all data, shape (d,)."""
        return np.broadcast_to(self.file.get("standardize/y_mean", 0.0), self.Y.shape[1])

    def kernel(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """Return k(a, b) of all pairs of rows."""
        squares = (A[:, None, :] - B[None, :, :]) ** 2 @ self.file["kernel/alpha"]
        return self.file["kernel/variance"] * np.exp(-0.5 * squares)

    def at(self, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (n*, d) and covariance (n*, n*) of the function, the latter per unit of output squared."""
        new = (new - self.file.get("standardize/x_mean", 0.0)) / self.file.get("standardize/x_scale", 1.0)
        K = self.kernel(self.X, self.X) + np.eye(len(self.X)) / self.file["beta"]
        across = self.kernel(self.X, new)
        factor = cho_factor(K)
        mean = across.T @ cho_solve(factor, self.Y)
        return mean * self.scale + self.centre, self.kernel(new, new) - across.T @ cho_solve(factor, across)


@pytest.fixture(scope="module", params=STANDARDISED)
def standardize(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(standardize: str, data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose inducing points are its training inputs; the data it learnt from are gone."""
    folder = tmp_path_factory.mktemp(standardize)
    file = write(folder / "data.h5", X=data.X, Y=data.Y)
    command("fit", file, "-o", folder / "model.h5", *FIT, "--standardize", standardize)
    file.unlink()
    return folder / "model.h5"


@pytest.fixture(scope="module")
def exact(model: Path, data: Data) -> Exact:
    found = Exact.of(model, data)
    with h5py.File(model) as file:
        assert file.attrs["jitter"] == 1e-10  # it did not have to grow
        inducing = file["Z"][()]
    assert np.array_equal(inducing[np.lexsort(inducing.T)], found.X[np.lexsort(found.X.T)])  # Z = X
    return found


@pytest.fixture(scope="module")
def new(data: Data) -> np.ndarray:
    """Some of the training inputs, and inputs between them, in the data's units."""
    rng = np.random.default_rng(12)
    return np.concatenate([data.X[:5], rng.uniform(data.X.min(0), data.X.max(0), size=(25, Q))])


def test_with_all_inputs_inducing_the_exact_gp_is_found(model: Path, exact: Exact, new: np.ndarray) -> None:
    """The jitter is all that differs. It takes directions with eigenvalues of K_mm below 1e-10 σ_f² out of the signal,
    and the exact GP makes of these 1e-10 β σ_f², some 1e-8, times what a prediction within the data amplifies."""
    found = predict(model, X=new)
    mean, covariance = exact.at(new)
    variance = np.diag(covariance)[:, None] * exact.scale**2
    assert np.abs((found["mean"] - mean) / exact.scale).max() < 1e-6
    assert np.abs((widened(found["variance"], D) - variance) / exact.scale**2).max() < 1e-6
    noise = exact.scale**2 / exact.file["beta"]
    assert np.allclose(widened(found["y_variance"], D), widened(found["variance"], D) + noise, rtol=1e-14, atol=0)


def test_variances_are_one_per_row_where_outputs_share_them(model: Path, standardize: str, new: np.ndarray) -> None:
    found = predict(model, X=new)
    shape = (len(new), D) if standardize == "scale" else (len(new),)
    assert found["mean"].shape == (len(new), D)
    assert found["variance"].shape == found["y_variance"].shape == shape
    assert found.keys() == {"mean", "variance", "y_variance"}
    assert (found["variance"] > 0).all()


def test_far_away_there_is_the_prior(model: Path, exact: Exact, data: Data) -> None:
    """Within a few roundings: 1e4 lengthscales away the kernel underflows."""
    away = 1e4 * np.ptp(data.X, axis=0) / np.sqrt(exact.file["kernel/alpha"])
    found = predict(model, X=data.X[:3] + np.array([away, -away, away * [1, -1]]))
    assert np.allclose(found["mean"], exact.centre, rtol=1e-14, atol=1e-300)
    prior = exact.file["kernel/variance"] * exact.scale**2
    assert np.allclose(widened(found["variance"], D), prior, rtol=1e-14, atol=0)


# uncertain inputs


@pytest.mark.parametrize(("spread", "tolerance"), [(0.0, 1e-9), (1e-9, 1e-6)])
def test_inputs_of_little_uncertainty_are_certain(
    model: Path, exact: Exact, data: Data, new: np.ndarray, spread: float, tolerance: float
) -> None:
    """Without any, what is left is rounding, that of moments whose terms are β² times larger than they; with some,
    mean and variance move by as much as it is, times curvatures of the function, which lie well below 1e3."""
    certain = predict(model, X=new)
    found = predict(model, X=new, X_variance=np.full(new.shape, spread) * data.X.var(0))
    assert np.abs((found["mean"] - certain["mean"]) / exact.scale).max() < tolerance
    different = widened(found["variance"], D) - widened(certain["variance"], D)
    assert np.abs(different / exact.scale**2).max() < tolerance


def test_uncertain_moments_agree_with_monte_carlo(model: Path, exact: Exact, data: Data, new: np.ndarray) -> None:
    """Within five standard errors of the mean of 20000 draws, for both moments of each row and output."""
    draws, rows = 20000, new[::6]
    rng = np.random.default_rng(13)
    S = data.X.var(0) * rng.uniform(0.01, 0.5, size=rows.shape)
    found = predict(model, X=rows, X_variance=S)
    inputs = rows[:, None, :] + np.sqrt(S)[:, None, :] * rng.normal(size=(len(rows), draws, Q))
    drawn = predict(model, X=inputs.reshape(-1, Q))
    mean = drawn["mean"].reshape(len(rows), draws, D)
    within = widened(drawn["variance"], D).reshape(len(rows), draws, D)
    centre = mean.mean(1)
    second = within + (mean - centre[:, None, :]) ** 2
    assert (np.abs(found["mean"] - centre) < 5 * mean.std(1) / np.sqrt(draws)).all()
    wanted, error = second.mean(1), second.std(1) / np.sqrt(draws)
    assert (np.abs(widened(found["variance"], D) - wanted) < 5 * error).all()
    assert (error < 0.05 * wanted).all()  # else this would show little
    noise = exact.scale**2 / exact.file["beta"]
    assert np.allclose(widened(found["y_variance"], D), widened(found["variance"], D) + noise, rtol=1e-14, atol=0)


# joint draws


def test_joint_draws_have_the_moments_of_the_exact_gp(model: Path, exact: Exact, new: np.ndarray) -> None:
    """Within five standard errors for 4000 draws of Gaussians: of a mean √(c_ii / K), of a covariance
    √((c_ii c_jj + c_ij²) / K), of a correlation between outputs, which are independent, 1 / √K."""
    draws, rows = 4000, new[:10]
    found = predict(model, "--samples", draws, "--seed", 3, X=rows)
    assert found["samples"].shape == (draws, len(rows), D)
    samples = (found["samples"] - found["mean"]) / exact.scale
    _, covariance = exact.at(rows)
    variance = np.diag(covariance)
    assert (np.abs(samples.mean(0)) < 5 * np.sqrt(variance / draws)[:, None]).all()
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / draws)
    for output in range(D):
        measured = samples[:, :, output].T @ samples[:, :, output] / draws
        assert (np.abs(measured - covariance) < 5 * error).all()
    across = np.mean(samples[:, :, 0] * samples[:, :, 1], axis=0) / variance
    assert (np.abs(across) < 5 / np.sqrt(draws)).all()


def test_draws_are_smooth_between_near_inputs(model: Path, exact: Exact, data: Data) -> None:
    """Two inputs h lengthscales apart differ by h σ_f at the prior and by less given data; 2000 differences stay
    within 6 of these. Draws that were not joint would differ by as much as they vary, a hundred times more."""
    h = 0.01
    unit = exact.file.get("standardize/x_scale", np.ones(Q)) / np.sqrt(exact.file["kernel/alpha"])
    middle = (data.X.min(0) + data.X.max(0)) / 2
    found = predict(model, "--samples", 1000, X=middle + np.array([[0.0, 0.0], [h * unit[0], 0.0]]))
    steps = (found["samples"][:, 1] - found["samples"][:, 0]) / exact.scale
    assert np.abs(steps).max() < 6 * h * np.sqrt(exact.file["kernel/variance"])
    assert (found["samples"][:, 0].std(0) > np.abs(steps).mean(0) * exact.scale).all()


def test_draws_follow_their_seed_and_leave_the_rest_alone(model: Path, new: np.ndarray) -> None:
    plain = predict(model, X=new)
    one, again, other = [predict(model, "--samples", 7, "--seed", seed, X=new) for seed in (1, 1, 2)]
    assert np.array_equal(one["samples"], again["samples"])
    assert not np.isclose(one["samples"], other["samples"]).any()
    assert len(np.unique(one["samples"])) == one["samples"].size
    for name, values in plain.items():
        assert one[name].tobytes() == values.tobytes()


# units, names and scores


@pytest.mark.parametrize(("standardize", "factor"), [("scale", 1e3), ("center", 1.0)])
def test_predictions_follow_the_units_of_the_data(standardize: str, factor: float, data: Data, tmp_path: Path) -> None:
    """Standardised, other units are the same numbers but for roundings of 1e-13, the shift having cost two or three
    digits; five iterations and a solution with β σ_f² of some 100 may blow these up a thousandfold each, not more."""
    shift = 300.0
    found = []
    for name, by, to in (("plain", 1.0, 0.0), ("other", factor, shift)):
        folder = tmp_path / name
        folder.mkdir()
        file = write(folder / "data.h5", X=data.X * by + to, Y=data.Y * by + to)
        fit = ["--model", "regression", "--inducing", 12, "--hold", 2, "--max-iter", 5, "--standardize", standardize]
        command("fit", file, "-o", folder / "model.h5", *fit)
        found.append(predict(folder / "model.h5", X=data.X * by + to))
    plain, other = found
    unit = data.Y.std()
    assert np.abs((other["mean"] - shift) / factor - plain["mean"]).max() < 1e-7 * unit
    for name in ("variance", "y_variance"):
        assert np.abs(other[name] / factor**2 - plain[name]).max() < 1e-7 * unit**2
    assert np.sqrt(np.mean((plain["mean"] - data.Y) ** 2)) < 0.9 * unit  # it did learn


def test_scores_are_those_of_the_predictions(
    model: Path, data: Data, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """To 12 digits: the same sums in another order."""
    rng = np.random.default_rng(14)
    X = rng.uniform(data.X.min(0), data.X.max(0), size=(33, Q))
    Y = data.Y.mean(0) + rng.normal(size=(33, D))
    for spread in ({}, {"X_variance": np.full(X.shape, 0.1)}):
        found = predict(model, "--json", X=X, Y=Y, **spread)
        figures = json.loads(capfd.readouterr().out.splitlines()[-1])
        errors, variance = Y - found["mean"], widened(found["y_variance"], D)
        density = -0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance).sum(1)
        assert figures["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-12)
        assert figures["log_density"] == pytest.approx(density.mean(), rel=1e-12)
    predict(model, "--json", X=X)
    assert not {"rmse", "log_density"} & json.loads(capfd.readouterr().out.splitlines()[-1]).keys()


def test_datasets_of_other_names_and_types(model: Path, new: np.ndarray, capfd: pytest.CaptureFixture[str]) -> None:
    """Single precision on disk is read as the doubles nearest to it."""
    single = new.astype(np.float32)
    plain = predict(model, X=single.astype(float))
    Y = np.zeros((len(new), D))
    found = predict(model, "--x", "inputs/new", "--y", "outputs", "--json", **{"inputs/new": single, "outputs": Y})
    assert all(found[name].tobytes() == values.tobytes() for name, values in plain.items())
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["rmse"] > 0


def test_one_row_at_a_time_is_as_good_as_all(model: Path, new: np.ndarray) -> None:
    """To rounding, magnified by what the moments' terms exceed the moments by."""
    together = predict(model, X=new)
    for row in (0, 7, len(new) - 1):
        alone = predict(model, X=new[row : row + 1])
        for name, values in together.items():
            assert alone[name].shape == (1, *values.shape[1:])
            assert np.allclose(alone[name][0], values[row], rtol=1e-10, atol=1e-10)


def test_one_output_has_one_variance_per_row(data: Data, tmp_path: Path) -> None:
    """Whatever its scale, it is the same for all outputs."""
    file = write(tmp_path / "data.h5", X=data.X, Y=data.Y[:, :1])
    fit = ["--model", "regression", "--inducing", 9, "--hold", 2, "--max-iter", 5]
    command("fit", file, "-o", tmp_path / "model.h5", *fit)
    found = predict(tmp_path / "model.h5", "--samples", 2, X=data.X[:4])
    shapes = {name: values.shape for name, values in found.items()}
    assert shapes == {"mean": (4, 1), "variance": (4,), "y_variance": (4,), "samples": (2, 4, 1)}
