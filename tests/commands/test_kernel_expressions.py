"""Composed kernels from the command line to the model file, predictions and the report."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import mpigp
from mpigp.cli import execute
from mpigp.kernels import Bias, Linear, Matern32, Periodic
from tests.support.calling import answer, command, read, write
from tests.support.reports import report

MONTHS = np.arange(240.0)
TREND, SEASON = 0.02 * MONTHS, np.sin(2 * np.pi * MONTHS / 12)
EXPRESSION = "linear[time] + periodic[time](period=12) + bias"
NAMES = ["linear.alpha[time]", "periodic.variance", "periodic.alpha[time]", "periodic.period[time]", "bias.variance"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a trend, a season and a little noise, with names of the columns."""
    noise = 0.1 * np.random.default_rng(2).normal(size=len(MONTHS))
    path = write(tmp_path_factory.mktemp("data") / "data.h5", X=MONTHS[:, None], Y=(TREND + SEASON + noise)[:, None])
    with h5py.File(path, "r+") as file:
        file["X"].attrs["columns"] = ["time"]
    return path


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    path = data.with_name("model.h5")
    command("fit", data, "-o", path, "--model", "regression", "--inducing", 30, "--kernel", EXPRESSION)
    return path


def figures(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[str, dict]:
    """Return what a command prints, and its JSON."""
    assert execute([*map(str, words), "--json"]) == 0
    printed = capfd.readouterr().out
    return printed, json.loads(printed.splitlines()[-1])


def test_parameters_have_names_everywhere(data: Path, model: Path, tmp_path: Path, capfd) -> None:
    again = tmp_path / "again.h5"
    printed, found = figures(capfd, "fit", data, "-o", again, "--model", "regression", "--inducing", 30,
                             "--kernel", EXPRESSION)  # fmt: skip
    assert [*found["kernel_parameters"]] == NAMES
    assert [*found["kernel_parameters"].values()] == found["alpha"] and found["variance"] == 1.0
    assert found["kernel"] == "linear[0] + periodic[0](period=12) + bias"
    for name in NAMES:
        assert f"\n{name} " in printed
    with h5py.File(model) as file:
        assert file["kernel/alpha"].attrs["names"].tolist() == NAMES
        assert file.attrs["kernel"] == found["kernel"]
        np.testing.assert_array_equal(file["kernel/alpha"][()], found["alpha"])
    page = report(again).text
    for name in NAMES:
        assert name in page


def test_the_period_starts_where_it_is_told_in_the_units_of_the_data(data: Path, model: Path, tmp_path: Path) -> None:
    start = tmp_path / "start.h5"
    command("fit", data, "-o", start, "--model", "regression", "--inducing", 30, "--kernel", EXPRESSION,
            "--max-iter", 0, "--start", "single")  # fmt: skip
    scale = MONTHS.std()
    for path, tolerance in ((start, 1e-9), (model, 0.02)):  # it is a start, from which the true one is found
        period = read(path)["kernel/alpha"][NAMES.index("periodic.period[time]")]
        assert period * scale == pytest.approx(12, rel=tolerance)


def test_components_add_up_and_are_what_the_data_were_made_of(data: Path, model: Path) -> None:
    found = answer("predict", model, "--components", X=MONTHS[:, None])
    parts = {name: found[f"components/{name}/mean"] for name in ("linear", "periodic", "bias")}
    Y = read(data)["Y"]
    np.testing.assert_allclose(sum(parts.values()) + Y.mean(), found["mean"], rtol=0, atol=1e-8)
    season = parts["periodic"] - parts["periodic"].mean()
    assert np.sqrt(np.mean((season[:, 0] - SEASON) ** 2)) < 0.05  # of 0.71; the noise is 0.1 in each of 240 rows
    slope = np.diff(parts["linear"][:, 0])
    np.testing.assert_allclose(slope, 0.02, rtol=0.1)
    for name in parts:
        variance = found[f"components/{name}/variance"]
        assert variance.shape == (len(MONTHS),) and (variance >= 0).all()


def test_components_are_for_sums_and_certain_inputs(data: Path, model: Path, tmp_path: Path, refused) -> None:
    new = write(tmp_path / "new.h5", X=MONTHS[:3, None], X_variance=np.ones((3, 1)))
    plain, output = tmp_path / "plain.h5", tmp_path / "out.h5"
    command("fit", data, "-o", plain, "--model", "regression", "--inducing", 5, "--max-iter", 2)
    line = refused("predict", plain, data, "-o", output, "--components")
    assert "--components: the kernel rbf has no parts: fit one such as rbf + linear" in line
    line = refused("predict", model, new, "-o", output)
    assert "/X_variance: the kernel" in line and "has no psi statistics" in line
    command("fit", data, "-o", plain, "--model", "regression", "--inducing", 5, "--max-iter", 2,
            "--kernel", "rbf + linear", "--overwrite")  # fmt: skip
    assert "--components is for certain inputs" in refused("predict", plain, new, "-o", output, "--components")
    command("predict", plain, new, "-o", output)  # its psi statistics are known


def test_the_report_draws_each_term(data: Path, model: Path, tmp_path: Path) -> None:
    page = report(model, "--data", data).source
    for name in ("linear", "periodic", "bias"):
        assert f"What {name} contributes" in page


@pytest.mark.parametrize(
    ("held", "names"),
    [
        ("periodic", ["periodic.variance", "periodic.alpha[time]", "periodic.period[time]"]),
        ("periodic.period,bias", ["periodic.period[time]", "bias.variance"]),
        ("alpha", ["linear.alpha[time]", "periodic.alpha[time]"]),
        ("variance", ["periodic.variance", "bias.variance"]),
    ],
)
def test_parameters_are_held_by_name(held: str, names: list[str], data: Path, tmp_path: Path) -> None:
    learn = ["fit", data, "--model", "regression", "--inducing", 12, "--kernel", EXPRESSION, "--start", "single"]
    command(*learn, "-o", tmp_path / "start.h5", "--max-iter", 0)
    command(*learn, "-o", tmp_path / "end.h5", "--max-iter", 8, "--fixed", held)
    start, end = (read(tmp_path / f"{name}.h5")["kernel/alpha"] for name in ("start", "end"))
    same = np.isclose(start, end, rtol=1e-12)  # they go through a logarithm
    assert [name for name, is_same in zip(NAMES, same, strict=True) if is_same] == names


def test_a_name_that_holds_nothing_is_refused(data: Path, tmp_path: Path, refused) -> None:
    learn = ["fit", data, "-o", tmp_path / "model.h5", "--model", "regression", "--inducing", 5]
    line = refused(*learn, "--kernel", "rbf + linear", "--fixed", "rbf.period")
    assert "--fixed: rbf.period: unknown" in line and "rbf.alpha" in line


@pytest.mark.parametrize(
    ("kernel", "said", "carets"),
    [
        ("rbff + linear", "unknown kernel 'rbff': did you mean 'rbf'?", "^^^^"),
        ("rbf + linear[tim]", "no column is named 'tim': did you mean 'time'?", "             ^^^"),
        ("rbf[0:3]", "there is no column", "    ^^^"),
        ("rbf[2:2]", "the range is empty", "    ^^^"),
        ("rbf + ", "no kernel follows '+'", "    ^"),
    ],
)
def test_a_bad_expression_is_pointed_to(kernel: str, said: str, carets: str, data: Path, tmp_path: Path, capfd) -> None:
    words = ["fit", data, "-o", tmp_path / "model.h5", "--model", "regression", "--inducing", 5, "--kernel", kernel]
    assert execute([*map(str, words)]) == 2
    line, shown, pointed = capfd.readouterr().err.splitlines()
    assert line.startswith("mpigp: --kernel: ") and said in line
    assert (shown, pointed) == (f"    {kernel}", f"    {carets}")
    assert not (tmp_path / "model.h5").exists()


def test_a_product_on_the_same_dimensions_is_not_for_a_gplvm(tmp_path: Path, capfd) -> None:
    data = write(tmp_path / "data.h5", Y=np.random.default_rng(0).normal(size=(20, 3)))
    words = ["fit", data, "-o", tmp_path / "model.h5", "--model", "gplvm", "--latent", 2, "--inducing", 5]
    assert execute([*map(str, words), "--kernel", "rbf[0:2] * rbf[1] + bias"]) == 2
    line, _, carets = capfd.readouterr().err.splitlines()
    assert "--kernel: " in line and carets == "    " + " " * 11 + "^^^^^^"


def test_the_same_kernel_may_be_named_again(data: Path, model: Path, refused, tmp_path: Path) -> None:
    output = tmp_path / "out.h5"
    for same in (EXPRESSION, "linear[0]+periodic[0](period=12)+bias"):
        command("predict", model, data, "-o", output, "--kernel", same)
    assert "and that of" in refused("predict", model, data, "-o", output, "--kernel", "rbf")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_take_expressions(tmp_path: Path) -> None:
    kernel = Matern32(columns=[0]) * Periodic(columns=[1]) + Linear() + Bias()
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(150, 2))
    y = np.sin(X[:, 0]) * np.cos(3 * X[:, 1]) + X[:, 0]
    estimator = mpigp.SparseGPRegression(20, kernel=kernel, max_iter=30).fit(X, y)
    assert repr(kernel) == "matern32[0] * periodic[1] + linear + bias"
    assert [*estimator.kernel_parameters_][:2] == ["matern32.variance", "matern32.alpha[0]"]
    estimator.save(tmp_path / "model.h5")
    for again in (mpigp.load(tmp_path / "model.h5"), mpigp.load(tmp_path / "model.h5", kernel=str(kernel))):
        np.testing.assert_array_equal(again.predict(X), estimator.predict(X))


def test_a_gplvm_of_a_sum_embeds_and_reconstructs(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 2))
    Y = np.column_stack([x @ rng.normal(size=(2, 4)), np.sin(2 * x[:, :1])]) + 0.01 * rng.normal(size=(80, 5))
    data, model = write(tmp_path / "data.h5", Y=Y), tmp_path / "model.h5"
    command("fit", data, "-o", model, "--model", "gplvm", "--latent", 2, "--inducing", 12,
            "--kernel", "rbf + linear + bias", "--max-iter", 150)  # fmt: skip
    holes = Y.copy()
    holes[::2, 1] = np.nan
    full = answer("reconstruct", model, Y=holes)
    mistakes = full["mean"][::2, 1] - Y[::2, 1]
    assert np.sqrt(np.mean(mistakes**2)) < 0.2 * Y[:, 1].std()
    embedded = answer("embed", model, Y=Y)
    latent = read(model)["latent/mu"]
    away = np.abs(embedded["latent/mu"] - latent).max(axis=1)  # these are the rows that it has learned from
    assert np.median(away) < 1e-2


def test_evaluate_finds_columns_by_name_and_refuses_other_parameters(data: Path, model: Path, capfd, refused) -> None:
    bounds = []
    for given in ((), ("--kernel", EXPRESSION), ("--kernel", "linear[0] + periodic[0](period=12) + bias")):
        bounds.append(figures(capfd, "evaluate", data, "--params", model, *given)[1]["bound"])
    assert bounds[0] == bounds[1] == bounds[2]
    for other in ("rbf", "rbf + rbf"):
        line = refused("evaluate", data, "--params", model, "--kernel", other)
        assert "/kernel/alpha: has 5 entries" in line


@pytest.mark.parametrize("kind", ["regression", "gplvm"])
def test_a_dry_run_knows_composed_kernels(kind: str, data: Path, tmp_path: Path) -> None:
    latent = ["--latent", 2] if kind == "gplvm" else []
    learn = ["fit", data, "-o", tmp_path / "m.h5", "--model", kind, "--inducing", 5, "--kernel", "rbf + linear"]
    command(*learn, *latent, "--dry-run")


def test_parts_on_different_columns_start_alike_and_on_the_same_apart(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    data = write(tmp_path / "data.h5", X=X, Y=X.sum(axis=1, keepdims=True))
    starts = {}
    for kernel in ("rbf[0] + rbf[1] + rbf[2]", "rbf + rbf", "rbf", "linear*linear + bias"):
        command("fit", data, "-o", tmp_path / "m.h5", "--model", "regression", "--inducing", 5, "--kernel", kernel,
                "--max-iter", 0, "--overwrite")  # fmt: skip
        starts[kernel] = read(tmp_path / "m.h5")["kernel/alpha"]
    np.testing.assert_allclose(starts["rbf[0] + rbf[1] + rbf[2]"][1::2], starts["rbf"], rtol=1e-9)
    np.testing.assert_allclose(starts["rbf + rbf"][5:], 9 * starts["rbf"], rtol=1e-9)
    np.testing.assert_allclose(starts["linear*linear + bias"], [1 / 6] * 3 + [1 / 3] * 3 + [1 / 2], rtol=1e-9)


def test_a_kernel_attribute_that_serves_no_gplvm_is_the_files_fault(tmp_path: Path, refused) -> None:
    Y = np.random.default_rng(0).normal(size=(30, 3))
    data, model = write(tmp_path / "data.h5", Y=Y), tmp_path / "model.h5"
    command("fit", data, "-o", model, "--model", "gplvm", "--latent", 2, "--inducing", 5, "--max-iter", 2)
    with h5py.File(model, "r+") as file:
        file.attrs["kernel"] = "matern32"
    line = refused("embed", model, data, "-o", tmp_path / "out.h5")
    assert line.startswith(f"mpigp: {model}: attribute kernel: matern32 has no psi statistics")


@pytest.mark.parametrize(("name", "place"), [("period", 3), ("variance", 1)])
def test_parameters_that_make_no_kernel_are_refused(
    name: str, place: int, model: Path, data: Path, tmp_path: Path, refused
) -> None:
    spoiled = tmp_path / "spoiled.h5"
    spoiled.write_bytes(model.read_bytes())
    with h5py.File(spoiled, "r+") as file:
        file["kernel/alpha"][place] = 0.0 if name == "period" else 1.7e308
        file["kernel/alpha"][4] = 1.7e308 if name == "variance" else 1.0
    line = refused("evaluate", data, "--params", spoiled)
    assert str(spoiled) in line


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loaded_estimator_keeps_the_names_of_columns(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    with h5py.File(write(tmp_path / "data.h5", X=x), "r+") as file:
        file["X"].attrs["columns"] = ["a", "b"]
        estimator = mpigp.SparseGPRegression(5, kernel="linear[b] + bias", max_iter=3).fit(file["X"], x[:, 1])
    estimator.save(tmp_path / "model.h5")
    assert mpigp.load(tmp_path / "model.h5").kernel == "linear[b] + bias"


def test_columns_of_one_name_keep_their_parameters_apart(tmp_path: Path, capfd) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    data = write(tmp_path / "data.h5", X=X, Y=X[:, :1])
    with h5py.File(data, "r+") as file:
        file["X"].attrs["columns"] = ["a", "a"]
    found = figures(capfd, "fit", data, "-o", tmp_path / "m.h5", "--model", "regression", "--inducing", 5,
                    "--kernel", "rbf + linear", "--max-iter", 2)[1]  # fmt: skip
    assert [*found["kernel_parameters"]] == ["rbf.variance", "rbf.alpha[0]", "rbf.alpha[1]", "linear.alpha[0]",
                                             "linear.alpha[1]"]  # fmt: skip
