"""Model files: what a fit writes is read back, and all else is refused in one line that says where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mpigp.errors import InputError
from mpigp.files.model_file import VERSION, ModelFile, open_model
from mpigp.gp.parameters import Standardization
from mpigp.mpi.timers import PHASES
from tests.support.modelfiles import write_model
from tests.support.problems import LATENT, REGRESSION, Problem, make

N, M, Q, D = 50, 4, 2, 3
Y = Standardization(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0]))


@pytest.fixture
def problem() -> Problem:
    return make(N, M, Q, D)


@pytest.fixture
def path(tmp_path: Path, problem: Problem) -> Path:
    """Return the model file of a GPLVM."""
    return write_model(tmp_path / "model.h5", LATENT, problem, 1e-6, {"y": Y})


def test_what_was_written_is_read(path: Path, problem: Problem) -> None:
    with open_model(path, n=N) as model:
        assert model.kind == "gplvm" and model.model().backend.name == "rbf" and model.learned
        assert model.jitter(0.0) == 1e-6 and model.attribute("n") == N and model.attribute("none", 7) == 7
        for found, written in zip(model.parameters(), problem.parameters, strict=True):
            np.testing.assert_allclose(found, written, rtol=1e-12)
        mu, S = model.latent(10, 20)
        np.testing.assert_allclose(mu, problem.mu[10:20], rtol=1e-12)
        np.testing.assert_allclose(S, problem.S[10:20], rtol=1e-12)
        assert np.array_equal(model.candidates().mu[10:20], mu)
        posterior = model.posterior()
        assert posterior.Z.shape == (M, Q) and posterior.d == D and posterior.x is None and posterior.y is not None
        assert np.array_equal(posterior.y.scale, Y.scale)
        assert model.trace() == {"bound": [], "gradient_norm": [], "seconds": [], "evaluations": []}
        timing = model.timing()
        assert timing is not None and timing.seconds.shape == (1, len(PHASES)) and timing.rows.tolist() == [N]
        assert model.identity() == {"seed": 0, "kernel": "rbf", "bound": "titsias"}


def test_parameters_alone_are_a_file_too(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "parameters.h5", "w") as file:
        file.attrs["model"] = "regression"
        file["Z"], file["beta"], file["kernel/variance"], file["kernel/alpha"] = np.ones((1, 2)), 4, 1.0, [1, 1]
        model = ModelFile(file)
        assert model.parameters().beta == 4.0 and model.jitter(1e-8) == 1e-8 and not model.learned
        assert model.outputs() is None and model.trace() == {} and model.timing() is None and model.identity() is None
        assert model.provenance() == {} and model.standardization("x") is None


def test_the_image_lacks_what_grows_with_the_rows(path: Path) -> None:
    with open_model(path) as model:
        names = set(model.file) - {"latent", "checkpoint"}
        (path.parent / "image.h5").write_bytes(model.image())
    with open_model(path.parent / "image.h5") as image:
        assert set(image.file) == names and image.attribute("n") == N and image.learned


def test_its_own_version_is_read(path: Path) -> None:
    with h5py.File(path) as file:
        assert file.attrs["version"] == VERSION
        assert ModelFile(file).kind == "gplvm"


def test_a_file_without_a_version_is_anybodys(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file.attrs["version"]
        ModelFile(file)


@pytest.mark.parametrize("version", [VERSION + 1, "two", [1, 1]])
def test_other_versions_are_refused_in_one_line(path: Path, version: object) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["version"] = version
        with pytest.raises(InputError, match=r"model.h5: attribute version: .* install a newer mpigp") as caught:
            ModelFile(file)
    assert "\n" not in str(caught.value)


def rows(model: ModelFile) -> Any:
    """Return all latent points, of as many rows and dimensions as they must have."""
    model.parameters()
    return model.latent(0, N)


def units(model: ModelFile) -> Any:
    return model.posterior().y


REFUSED: list[tuple[str, Any, Callable[[ModelFile], Any]]] = [
    ("Z", np.ones(M), ModelFile.parameters),
    ("Z", np.ones((0, Q)), ModelFile.parameters),
    ("Z", np.full((M, Q), np.nan), ModelFile.parameters),
    ("Z", None, ModelFile.parameters),
    ("beta", -1.0, ModelFile.parameters),
    ("beta", "one", ModelFile.parameters),
    ("kernel/variance", [1.0], ModelFile.parameters),
    ("kernel/alpha", np.ones(Q + 1), ModelFile.parameters),
    ("kernel/alpha", [1.0, -1.0], ModelFile.parameters),
    ("latent/mu", np.ones((N - 1, Q)), rows),
    ("latent/S", np.ones((N, Q + 1)), rows),
    ("latent/S", np.zeros((N, Q)), rows),
    ("latent/S", None, ModelFile.candidates),
    ("standardize/y_mean", None, units),
    ("standardize/y_scale", np.ones(D + 1), units),
    ("standardize/y_scale", np.zeros(D), units),
    ("posterior/order", np.ones(M), ModelFile.posterior),
    ("posterior/L", np.ones((M, M + 1)), ModelFile.posterior),
    ("posterior/L_B", np.ones((2, M, M)), ModelFile.posterior),
    ("posterior/g", np.ones((M + 1, D)), ModelFile.posterior),
    ("posterior/group", np.full(D, 1), ModelFile.posterior),
    ("trace/seconds", np.ones(2), ModelFile.trace),
    ("trace/evaluations", None, ModelFile.trace),
    ("trace/validation_rmse", [], ModelFile.trace),  # without the other score
    ("timing/rows", np.ones(2), ModelFile.timing),
    ("timing/phases", np.ones((1, 1)), ModelFile.timing),
    ("checkpoint/options", "{", ModelFile.identity),
    ("checkpoint/numbers", None, lambda model: model.restore({}, 0, N)),
]


@pytest.mark.parametrize(("name", "value", "read"), REFUSED, ids=[each[0] for each in REFUSED])
def test_other_shapes_and_kinds_are_refused_in_one_line(
    path: Path, name: str, value: Any, read: Callable[[ModelFile], Any]
) -> None:
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        if value is not None:
            file[name] = value
    where = rf"model.h5: /{'checkpoint' if name.startswith('checkpoint') else name.partition('/')[0]}"
    with open_model(path, n=N) as model, pytest.raises(InputError, match=where) as caught:
        read(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("model", "pca"), ("kernel", "none:at_all"), ("jitter", "small")])
def test_other_attributes_are_refused_in_one_line(path: Path, name: str, value: object) -> None:
    with h5py.File(path, "a") as file:
        file.attrs[name] = value
    with open_model(path) as model, pytest.raises(InputError, match=f"model.h5: attribute {name}: ") as caught:
        model.model()
        model.jitter(0.0)
    assert "\n" not in str(caught.value) and str(caught.value).count(": attribute ") == 1


def test_a_regression_has_no_latent_points(tmp_path: Path, problem: Problem) -> None:
    path = write_model(tmp_path / "model.h5", REGRESSION, problem, 1e-6)
    with open_model(path) as model, pytest.raises(InputError, match="/latent/mu: there is no such dataset"):
        model.candidates()
