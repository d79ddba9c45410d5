"""Names of columns on their way from a table through a model to predictions: the order of columns does not matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.calling import command, read, write
from tests.support.reports import report

X_NAMES, Y_NAMES = ["wind", "heat", "rain"], ["up", "down"]
ROWS = 120


def table(path: Path, names: list[str], columns: dict[str, np.ndarray]) -> Path:
    """Write a CSV file."""
    rows = np.column_stack([columns[name] for name in names])
    path.write_text("\n".join([",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())]))
    return path


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    wind, heat, _ = X = rng.uniform(-2, 2, size=(3, ROWS)) * [[1.0], [10.0], [1.0]]
    noise = 0.1 * rng.normal(size=(2, ROWS))
    up, down = np.sin(wind) + heat + noise[0], np.cos(wind) - 0.3 * heat + noise[1]
    return dict(zip([*X_NAMES, *Y_NAMES], [*X, up, down], strict=True)) | {"other": rng.normal(size=ROWS)}


def converted(folder: Path, x: list[str], y: list[str], columns: dict[str, np.ndarray], name: str) -> Path:
    """Return the data file of a table with these columns of X and Y, in this order."""
    path = folder / f"{name}.h5"
    command("convert", table(folder / f"{name}.csv", [*x, *y], columns), "-o", path,
            "--x-columns", ",".join(x), "--y-columns", ",".join(y))  # fmt: skip
    return path


@pytest.fixture(scope="module")
def regression(columns: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression")
    data = converted(folder, X_NAMES, Y_NAMES, columns, "data")
    command("fit", data, "-o", folder / "model.h5", "--model", "regression", "--inducing", 15, "--max-iter", 60)
    return folder / "model.h5"


@pytest.fixture(scope="module")
def gplvm(columns: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gplvm")
    data = converted(folder, [], [*X_NAMES, *Y_NAMES], columns, "data")
    command("fit", data, "-o", folder / "model.h5", "--model", "gplvm", "--latent", 2, "--inducing", 10,
            "--max-iter", 20)  # fmt: skip
    return folder / "model.h5"


def names(path: Path, which: str) -> list[str]:
    with h5py.File(path) as file:
        return file[f"columns/{which}"].asstr()[()].tolist()


def test_a_model_has_the_names_of_its_data(regression: Path, gplvm: Path) -> None:
    assert (names(regression, "x"), names(regression, "y")) == (X_NAMES, Y_NAMES)
    assert names(gplvm, "y") == [*X_NAMES, *Y_NAMES]
    with h5py.File(gplvm) as file:
        assert "columns/x" not in file


def test_exchanged_columns_predict_the_same(
    regression: Path, columns: dict[str, np.ndarray], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Seen before: an RMSE ten times as large, and exit code 0."""
    output = tmp_path / "predicted.h5"
    command("predict", regression, regression.with_name("data.h5"), "-o", output, "--json")
    printed = capfd.readouterr().out
    straight, score = read(output), json.loads(printed.splitlines()[-1])["rmse"]
    assert "by name" not in printed and score < 0.2

    new = converted(tmp_path, ["rain", "other", "wind", "heat"], Y_NAMES[::-1], columns, "new")
    command("predict", regression, new, "-o", output, "--json")
    printed = capfd.readouterr().out
    turned = read(output)
    for name in ("mean", "variance", "y_variance"):
        assert np.array_equal(turned[name], straight[name])
    assert json.loads(printed.splitlines()[-1])["rmse"] == score
    assert (
        f"{new}: /X: columns are read by name, as the inputs of {regression}: wind, heat, rain; ignored: other\n"
        in printed
    )
    assert (
        f"{new}: /Y: columns are in another order than the outputs of {regression}, and read by name: up, down"
        in printed
    )
    assert names(output, "y") == Y_NAMES


def test_what_lies_beside_the_inputs_turns_with_them(
    regression: Path, columns: dict[str, np.ndarray], tmp_path: Path
) -> None:
    X = np.column_stack([columns[name] for name in X_NAMES])
    S, order, found = np.linspace(0.1, 0.5, X.size).reshape(X.shape), [2, 0, 1], []
    for turn, own in (([0, 1, 2], False), (order, False), (order, True)):
        new = write(tmp_path / "new.h5", X=X[:, turn], X_variance=S[:, turn])
        with h5py.File(new, "r+") as file:
            for name in ("X", "X_variance") if own else ("X",):
                file[name].attrs["columns"] = [X_NAMES[place] for place in turn]
        command("predict", regression, new, "-o", tmp_path / "predicted.h5")
        found.append(read(tmp_path / "predicted.h5")["mean"].tobytes())
    assert len(set(found)) == 1
    with h5py.File(new, "r+") as file:
        del file["X_variance"]
    for place, path in enumerate((new, regression.with_name("data.h5"))):
        command("predict", regression, path, "-o", tmp_path / f"{place}.h5", "--samples", 2)
    assert np.array_equal(read(tmp_path / "0.h5")["samples"], read(tmp_path / "1.h5")["samples"])


def test_variances_without_names_are_as_many_as_the_inputs(
    regression: Path, columns: dict[str, np.ndarray], tmp_path: Path, refused: Callable[..., str]
) -> None:
    X = np.column_stack([columns[name] for name in (*X_NAMES, X_NAMES[0])])
    new = write(tmp_path / "new.h5", X=X, X_variance=np.full((len(X), 3), 0.1))
    with h5py.File(new, "r+") as file:
        file["X"].attrs["columns"] = [*X_NAMES, "another"]
    said = f"{new}: /X_variance: has shape {(len(X), 3)}, and /X {X.shape}: give a variance for each of its columns"
    assert said in refused("predict", regression, new, "-o", tmp_path / "predicted.h5")


def test_columns_that_are_missing_are_named(
    regression: Path, gplvm: Path, columns: dict[str, np.ndarray], tmp_path: Path, refused: Callable[..., str]
) -> None:
    new = converted(tmp_path, ["other", "wind", "heat"], Y_NAMES, columns, "new")
    few = converted(tmp_path, [], ["up", "wind", "heat", "other", "rain"], columns, "few")
    output = tmp_path / "output"
    for words in (["predict", regression, new], ["report", regression, "--data", new],
                  ["evaluate", new, "--params", regression]):  # fmt: skip
        line = refused(*words, "-o", output)
        assert f"{new}: /X: lacks rain, and has other, wind, heat: the inputs of {regression} are found by name" in line
    for name in ("embed", "reconstruct"):
        line = refused(name, gplvm, few, "-o", output)
        assert f"{few}: /Y: lacks down, and has up, wind, heat, other, rain: the outputs of {gplvm}" in line
    assert not output.exists()


def test_data_without_names_are_taken_by_position(
    regression: Path, columns: dict[str, np.ndarray], tmp_path: Path
) -> None:
    X = np.column_stack([columns[name] for name in X_NAMES])
    command("predict", regression, write(tmp_path / "new.h5", X=X), "-o", tmp_path / "a.h5")
    command("predict", regression, regression.with_name("data.h5"), "-o", tmp_path / "b.h5")
    assert np.array_equal(read(tmp_path / "a.h5")["mean"], read(tmp_path / "b.h5")["mean"])


@pytest.mark.parametrize("name", ["embed", "reconstruct"])
def test_a_gplvm_finds_its_outputs(
    name: str, gplvm: Path, columns: dict[str, np.ndarray], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    new = converted(tmp_path, [], ["down", "other", *X_NAMES, "up"], columns, "new")
    command(name, gplvm, gplvm.with_name("data.h5"), "-o", tmp_path / "a.h5")
    assert "by name" not in capfd.readouterr().out
    command(name, gplvm, new, "-o", tmp_path / "b.h5")
    assert "/Y: columns are read by name" in capfd.readouterr().out
    a, b = read(tmp_path / "a.h5"), read(tmp_path / "b.h5")
    assert a.keys() == b.keys() and ("columns/y" in a) is (name == "reconstruct")
    assert all(a[key].tolist() == b[key].tolist() for key in a)


def test_evaluate_finds_them_too(
    regression: Path, columns: dict[str, np.ndarray], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    new = converted(tmp_path, X_NAMES[::-1], Y_NAMES[::-1], columns, "new")
    bounds = []
    for data in (regression.with_name("data.h5"), new):
        for rows in ("all", "stream"):
            command("evaluate", data, "--params", regression, "--rows-in-memory", rows, "--json")
            bounds.append(json.loads(capfd.readouterr().out.splitlines()[-1])["bound"])
    assert len(set(bounds)) == 1


def test_names_stand_where_numbers_of_columns_do(
    columns: dict[str, np.ndarray], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    constant = columns | {"rain": np.ones(ROWS)}
    data, model = converted(tmp_path, X_NAMES, Y_NAMES, constant, "data"), tmp_path / "model.h5"
    capfd.readouterr()
    command("fit", data, "-o", model, "--model", "regression", "--inducing", 5, "--max-iter", 3, "--json")
    printed = capfd.readouterr().out.splitlines()
    assert "constant columns of X: 2 (rain)" in printed
    weights = [line.split()[:3] for line in printed if line.startswith("alpha")]
    assert weights == [["alpha", str(place), name] for place, name in enumerate(X_NAMES)]
    assert json.loads(printed[-1])["columns"] == {"x": X_NAMES, "y": Y_NAMES}
    command("info", model, "--json")
    printed = capfd.readouterr().out.splitlines()
    assert "    x_columns = wind, heat, rain" in printed
    assert json.loads(printed[-1])["parameters"]["y_columns"] == Y_NAMES


def test_a_column_without_entries_is_named(
    columns: dict[str, np.ndarray], tmp_path: Path, refused: Callable[..., str]
) -> None:
    data = converted(tmp_path, [], X_NAMES, columns | {"heat": np.full(ROWS, np.nan)}, "data")
    words = ["fit", data, "-o", tmp_path / "model.h5", "--model", "gplvm", "--latent", 1, "--inducing", 3, "--missing"]
    assert "/Y: column 1 (counted from 0), heat, has no entry at all" in refused(*words)


def test_a_report_names_its_inputs(
    regression: Path, columns: dict[str, np.ndarray], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    straight = report(regression, "--data", regression.with_name("data.h5"))
    new = converted(tmp_path, X_NAMES[::-1], Y_NAMES[::-1], columns, "new")
    capfd.readouterr()
    turned = report(regression, "--data", new, "--json")
    printed = capfd.readouterr().out.splitlines()
    assert sum("by name" in line for line in printed) == 2
    assert json.loads(printed[-1])["columns"] == {"x": X_NAMES, "y": Y_NAMES}
    assert turned.drawn["predictions"] == straight.drawn["predictions"]
    alone = report(regression, "--png", tmp_path)
    for page in (alone, turned):
        assert page.drawn["inputs"] == [f"input {place}, {name}" for place, name in enumerate(X_NAMES)]
        (ard,) = [panel for panel in page.drawn["panels"] if panel["name"] == "ard"]
        assert [name for _, name in ard["x"]["ticks"]] == X_NAMES
        assert "input ARD weight α lengthscale wind" in page.text


def test_names_are_not_formulas(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Nor marks of a page."""
    odd = {"$\\nothing$": columns["wind"], "a long name <b>of many": columns["heat"], "cost $": columns["up"]}
    data, model = converted(tmp_path, list(odd)[:2], list(odd)[2:], odd, "data"), tmp_path / "model.h5"
    command("fit", data, "-o", model, "--model", "regression", "--inducing", 5, "--max-iter", 3)
    page = report(model, "--data", data, "--png", tmp_path)
    assert "<b>" not in page.source and (tmp_path / "ard.png").exists()
    (ard,) = [panel for panel in page.drawn["panels"] if panel["name"] == "ard"]
    assert [name for _, name in ard["x"]["ticks"]] == ["$\\nothing$", "a long name…"]
