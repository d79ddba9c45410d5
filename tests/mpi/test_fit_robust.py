"""What `fit` refuses ends every rank: exit code 2, one line that says what to do, and no output harmed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.fits import fit
from tests.support.inputs import Inputs, change, replace, write_inputs
from tests.support.launching import several
from tests.support.refusals import Case, Cases, Refused, Setting, assert_case_refused, tried

N, M, Q, D = 300, 6, 2, 3
SHORT = ["--max-iter", 3, "--hold", 1]
CASES = Cases()


def case(model: str, *said: str, resume: bool = False) -> Callable:
    """Register a function that spoils the inputs of a model, and may return more arguments.

    With `resume`, the output holds a checkpoint of the good files, and the run is to go on from it.
    """
    return CASES.add(*said, model=model, resume=resume)


# a checkpoint of something else


@case("gplvm", "{output}", "checkpoint", "other data", "without --resume", resume=True)
def other_outputs(inputs: Inputs) -> None:
    change(inputs.data, "Y", (17, 1), 0.25)


@case("regression", "{output}", "checkpoint", "other data", "without --resume", resume=True)
def other_outputs_of_a_regression(inputs: Inputs) -> None:
    change(inputs.data, "Y", (17, 1), 0.25)


@case("regression", "{output}", "checkpoint", "other data", "without --resume", resume=True)
def other_inputs_and_the_same_outputs(inputs: Inputs) -> None:
    change(inputs.data, "X", (17, 1), 0.25)


@case("gplvm", "{output}", "checkpoint", "other data", "without --resume", resume=True)
def the_same_rows_in_another_order(inputs: Inputs) -> None:
    with h5py.File(inputs.data) as file:
        Y = file["Y"][()]
    replace(inputs.data, "Y", Y[::-1])


@case("gplvm", "{output}", "checkpoint", "other data", "without --resume", resume=True)
def outputs_of_the_opposite_sign(inputs: Inputs) -> None:
    with h5py.File(inputs.data) as file:
        Y = file["Y"][()]
    replace(inputs.data, "Y", -Y)


@case("gplvm", "{output}", "checkpoint", "other data", "without --resume", resume=True)
def outputs_in_other_units(inputs: Inputs) -> None:
    """Standardised they are the same numbers; the model's units are not."""
    with h5py.File(inputs.data) as file:
        Y = file["Y"][()]
    replace(inputs.data, "Y", 4 * Y)


@case("gplvm", "{output}", "checkpoint", "rows = 300", "without --resume", resume=True)
def fewer_rows(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.ones((N - 1, D)) * np.arange(N - 1)[:, None] % 7)


@case("gplvm", "{output}", "checkpoint", "outputs = 3", "without --resume", resume=True)
def fewer_outputs(inputs: Inputs) -> None:
    with h5py.File(inputs.data) as file:
        Y = file["Y"][()]
    replace(inputs.data, "Y", Y[:, :2])


@case("regression", "{output}", "checkpoint", "model = 'regression'", "without --resume", resume=True)
def other_model(inputs: Inputs) -> list[object]:
    return ["--model", "gplvm", "--latent", Q]


OTHER = {
    "inducing": ("--inducing", M - 1, f"inducing = {M}"),
    "dimensions": ("--latent", Q - 1, f"dimensions = {Q}"),
    "optimizer": ("--optimizer", "scg", "optimizer = 'lbfgs'"),
    "seed": ("--seed", 1, "seed = 0"),
    "jitter": ("--jitter", 1e-5, "jitter = "),
    "fixed": ("--fixed", "S", "fixed = "),
    "hold": ("--hold", 2, "hold = 1"),
    "init": ("--init", "random", "init = 'pca'"),
    "placement": ("--placement", "kmeans", "placement = "),
    "standardize": ("--standardize", "none", "standardize = 'scale'"),
}
for name, (flag, value, said) in OTHER.items():

    def other_option(inputs: Inputs, words: tuple = (flag, value)) -> list[object]:
        return list(words)

    other_option.__name__ = f"other_{name}"
    case("gplvm", "{output}", "checkpoint", said, "without --resume", resume=True)(other_option)


# a file that is no checkpoint


@case("gplvm", "{output}", "not an HDF5 file")
def output_is_no_hdf5(inputs: Inputs) -> list[object]:
    return ["--resume"]


@case("gplvm", "{output}", "no checkpoint", "--resume")
def output_is_a_file_of_parameters(inputs: Inputs) -> list[object]:
    inputs.data.with_name("model.h5").write_bytes(inputs.params.read_bytes())
    return ["--resume"]


@case("gplvm", "{output}", resume=True)
def checkpoint_is_cut_off(inputs: Inputs) -> None:
    path = inputs.data.with_name("model.h5")
    os.truncate(path, path.stat().st_size // 2)


@case("gplvm", "{output}", "checkpoint", resume=True)
def checkpoint_lacks_a_vector(inputs: Inputs) -> None:
    with h5py.File(inputs.data.with_name("model.h5"), "r+") as file:
        del file["checkpoint/vectors/point"]


@case("gplvm", "{output}", "checkpoint", resume=True)
def checkpoint_lacks_its_numbers(inputs: Inputs) -> None:
    with h5py.File(inputs.data.with_name("model.h5"), "r+") as file:
        del file["checkpoint/numbers/scalars"]


@case("gplvm", "{output}", resume=True)
def checkpoint_lacks_its_trace(inputs: Inputs) -> None:
    with h5py.File(inputs.data.with_name("model.h5"), "r+") as file:
        del file["trace"]


# data and options that do not go together


@case("gplvm", "--inducing", "is 301", "300 rows", "at most")
def more_inducing_points_than_rows(inputs: Inputs) -> list[object]:
    return ["--inducing", N + 1]


@case("regression", "--inducing", "is 301", "300 rows", "at most")
def more_inducing_points_than_rows_of_a_regression(inputs: Inputs) -> list[object]:
    return ["--inducing", N + 1, "--placement", "greedy"]


@case("gplvm", "--latent", "4", "3")
def more_latent_dimensions_than_outputs(inputs: Inputs) -> list[object]:
    return ["--latent", D + 1]


@case("gplvm", "--latent", "missing")
def latent_dimensions_missing(inputs: Inputs) -> list[object]:
    return ["WITHOUT --latent"]


@case("gplvm", "--latent", "is 0", "≥ 1")
def no_latent_dimension(inputs: Inputs) -> list[object]:
    return ["--latent", 0]


@case("regression", "--inducing", "is 0", "≥ 1")
def no_inducing_point(inputs: Inputs) -> list[object]:
    return ["--inducing", 0]


@case("gplvm", "--inducing", "is -3", "≥ 1")
def fewer_inducing_points_than_none(inputs: Inputs) -> list[object]:
    return ["--inducing=-3"]


@case("gplvm", "--fixed", "gamma", "unknown", "alpha")
def unknown_parameter_held(inputs: Inputs) -> list[object]:
    return ["--fixed", "beta,gamma"]


@case("gplvm", "--optimizer", "adam", "lbfgs", "--help")
def unknown_optimizer(inputs: Inputs) -> list[object]:
    return ["--optimizer", "adam"]


@case("gplvm", "--placement", "grid", "kmeans", "--help")
def unknown_placement(inputs: Inputs) -> list[object]:
    return ["--placement", "grid"]


@case("gplvm", "--jitter", "is -1e-06", "≥ 0")
def negative_jitter(inputs: Inputs) -> list[object]:
    return ["--jitter=-1e-6"]


@case("regression", "--jitter", "≥ 0")
def jitter_is_no_number(inputs: Inputs) -> list[object]:
    return ["--jitter", "nan"]


@case("gplvm", "{data}", "/Y", "row 250 ", "NaN or Inf")
def nan_in_the_rows_of_the_last_rank(inputs: Inputs) -> None:
    change(inputs.data, "Y", (250, 2), np.nan)


@case("regression", "{data}", "/X", "row 130 ", "NaN or Inf")
def infinite_input_in_the_middle(inputs: Inputs) -> None:
    change(inputs.data, "X", (130, 0), np.inf)


@case("gplvm", "{data}", "/Y", "column 1 ", "leave it out")
def column_without_any_entry(inputs: Inputs) -> list[object]:
    change(inputs.data, "Y", (slice(None), 1), np.nan)
    return ["--missing"]


@case("gplvm", "{data}", "/Y", "row 130 ", "Inf")
def infinite_output_among_missing_ones(inputs: Inputs) -> list[object]:
    change(inputs.data, "Y", (7, 0), np.nan)
    change(inputs.data, "Y", (130, 1), np.inf)
    return ["--missing"]


@case("regression", "--missing", "not for regression", "leave rows with missing entries out")
def missing_outputs_of_a_regression(inputs: Inputs) -> list[object]:
    return ["--missing"]


@case("gplvm", "{output}", "checkpoint", "without --resume", resume=True)
def entries_gone_missing(inputs: Inputs) -> list[object]:
    change(inputs.data, "Y", (130, 1), np.nan)
    return ["--missing"]


@case("gplvm", "elsewhere", "does not exist")
def latent_points_from_a_missing_file(inputs: Inputs) -> list[object]:
    return ["--init", inputs.data.with_name("elsewhere.h5")]


@case("gplvm", "missing/model.h5", "does not exist", "create it")
def output_folder_missing(inputs: Inputs) -> list[object]:
    return ["-o", inputs.data.parent / "missing" / "model.h5"]


@case("gplvm", "{data}", "choose another output path")
def output_is_the_data(inputs: Inputs) -> list[object]:
    return ["-o", inputs.data]


@case("gplvm", "missing/metrics.jsonl", "does not exist", "create it")
def metrics_folder_missing(inputs: Inputs) -> list[object]:
    return ["--metrics", inputs.data.parent / "missing" / "metrics.jsonl"]


@case("gplvm", "--seed", "-1")
def negative_seed(inputs: Inputs) -> list[object]:
    return ["--seed", "-1"]


# the tests


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A checkpoint of the good files of either model."""
    folder = tmp_path_factory.mktemp("checkpoints")
    commands = []
    for model in ("regression", "gplvm"):
        inputs = write_inputs(folder / model, model, N, M, Q, D)
        commands.append(fit(inputs, folder / model / "model.h5", model, *SHORT, m=M, q=Q))
    for (outcome,) in several(folder / "told", 1, commands):
        assert outcome.code == 0, outcome.stderr
    return {model: (folder / model / "model.h5").read_bytes() for model in ("regression", "gplvm")}


@pytest.fixture(scope="module", params=[1, 3], ids="{} ranks".format)
def refused(
    request: pytest.FixtureRequest, checkpoints: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Refused]:
    """All cases, in one start of mpiexec."""

    def setting(folder: Path, case: Case) -> Setting:
        model, resume = case.options["model"], case.options["resume"]
        inputs = write_inputs(folder, model, N, M, Q, D)
        output = folder / "model.h5"
        output.write_bytes(checkpoints[model] if resume else b"an earlier result")
        more = case.spoil(inputs) or []
        words = fit(inputs, output, model, *SHORT, m=M, q=Q)
        if more == ["WITHOUT --latent"]:
            more, place = [], words.index("--latent")
            words = words[:place] + words[place + 2 :]
        if "-o" in more:
            output.unlink()
        os.utime(inputs.data, (1, 1))
        files = inputs._asdict() | {"output": output}
        return Setting(folder, files, [*words, *more, *(["--resume"] if resume else [])])

    return tried(tmp_path_factory.mktemp("robust"), request.param, CASES, setting)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_is_refused(case: Case, refused: dict[str, Refused]) -> None:
    assert_case_refused(case, refused[case.name])


def test_the_checkpoints_themselves_can_be_resumed(checkpoints: dict[str, bytes], tmp_path: Path) -> None:
    """Else the cases above would be refused for nothing."""
    commands = []
    for model in ("regression", "gplvm"):
        inputs = write_inputs(tmp_path / model, model, N, M, Q, D)
        output = tmp_path / model / "model.h5"
        output.write_bytes(checkpoints[model])
        commands.append([*fit(inputs, output, model, *SHORT, m=M, q=Q), "--max-iter", 5, "--resume", "--json"])
    for (outcome,) in several(tmp_path / "told", 1, commands):
        assert outcome.code == 0, outcome.stderr
        assert outcome.figures["iterations"] == 5
