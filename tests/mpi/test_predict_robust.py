"""What predict, embed and reconstruct refuse ends every rank: exit code 2, one line that says what to do, no harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest

from tests.support.fits import fit
from tests.support.inputs import change, damage, middle_of_chunk, replace, write_inputs
from tests.support.launching import run, several
from tests.support.refusals import Case, Cases, Refused, Setting, assert_case_refused, assert_refused, state, tried

N, M, Q, D = 300, 6, 2, 3  # of the models
NEW = 1009  # rows to predict, 16 chunks: with three ranks, rows 0 to 319, 320 to 639, and from 640
CASES = Cases()


class Files(NamedTuple):
    """The two files that the commands read: a model, and new rows."""

    model: Path
    new: Path


def case(command: str, *said: str, of: str = "gplvm") -> Callable:
    """Register a function that spoils the files of a command, a model `of` a kind, and may return more arguments."""
    return CASES.add(*said, command=command, of=of)


def each(*said: str) -> Callable:
    """Register a function for all three commands; {dataset} in what is said is the one that the command reads."""

    def register(spoil: Callable) -> Callable:
        for command, dataset in (("predict", "/X"), ("embed", "/Y"), ("reconstruct", "/Y")):

            def spoilt(files: Files, dataset: str = dataset) -> list[object] | None:
                return spoil(files, dataset)

            spoilt.__name__ = f"{command}_{spoil.__name__}"
            case(command, *[text.replace("{dataset}", dataset) for text in said])(spoilt)
        return spoil

    return register


# the model


@each("{model}", "does not exist", "check the path")
def model_missing(files: Files, dataset: str) -> None:
    files.model.unlink()


@each("{model}", "not an HDF5 file")
def model_is_text(files: Files, dataset: str) -> None:
    files.model.write_text("model\n")


@each("{model}", "cannot be read", "is the file whole?")
def model_is_cut_off(files: Files, dataset: str) -> None:
    os.truncate(files.model, files.model.stat().st_size // 2)


@each("{model}", "model")
def model_is_a_file_of_data(files: Files, dataset: str) -> None:
    files.model.write_bytes(files.new.read_bytes())


@each("{model}", "/posterior", "mpigp fit")
def model_without_a_posterior(files: Files, dataset: str) -> None:
    replace(files.model, "posterior", None)


@each("{model}", "/posterior")
def model_without_a_part_of_the_posterior(files: Files, dataset: str) -> None:
    with h5py.File(files.model, "r+") as file:
        del file["posterior"][min(file["posterior"])]


@each("{model}", "/posterior", "does not fit /Z")
def model_with_a_posterior_of_another_shape(files: Files, dataset: str) -> None:
    with h5py.File(files.model, "r+") as file:
        L_B = file["posterior/L_B"][()]
        del file["posterior/L_B"]
        file["posterior/L_B"] = np.concatenate([L_B, L_B[-1:]])


@each("{model}", "/posterior", "NaN or Inf")
def model_with_nan_in_the_posterior(files: Files, dataset: str) -> None:
    with h5py.File(files.model, "r+") as file:
        name = next(name for name, item in file["posterior"].items() if item.dtype.kind == "f")
    change(files.model, f"posterior/{name}", (0, 0), np.nan)


@each("{model}", "/Z", "no such dataset")
def model_without_inducing_points(files: Files, dataset: str) -> None:
    replace(files.model, "Z", None)


@case("embed", "{model}", "regression", "only a GPLVM", of="regression")
def embedding_by_a_regression(files: Files) -> None:
    replace(files.new, "Y", np.ones((NEW, D)))


@case("reconstruct", "{model}", "regression", "only a GPLVM", of="regression")
def reconstruction_by_a_regression(files: Files) -> None:
    replace(files.new, "Y", np.ones((NEW, D)))


# the new rows


@each("{new}", "does not exist", "check the path")
def new_missing(files: Files, dataset: str) -> None:
    files.new.unlink()


@each("{new}", "not an HDF5 file", "mpigp convert")
def new_is_a_table_of_text(files: Files, dataset: str) -> None:
    files.new.write_text("x,y\n1,2\n")


@each("{new}", "cannot be read", "is the file whole?")
def new_is_cut_off(files: Files, dataset: str) -> None:
    os.truncate(files.new, files.new.stat().st_size // 2)


@each("{new}", "{dataset}", "no such dataset")
def dataset_missing(files: Files, dataset: str) -> None:
    replace(files.new, dataset, None)


@each("{new}", "/elsewhere", "no such dataset")
def dataset_of_another_name_missing(files: Files, dataset: str) -> list[object]:
    return [{"/X": "--x", "/Y": "--y"}[dataset], "elsewhere"]


OTHER: dict[str, tuple[tuple[str, ...], Callable[[int], np.ndarray]]] = {  # of as many columns as the model wants
    "too_wide": (("{model}", "columns"), lambda columns: np.ones((NEW, columns + 1))),
    "too_narrow": (("{model}", "columns"), lambda columns: np.ones((NEW, columns - 1))),
    "without_rows": (("no rows", "give at least one"), lambda columns: np.ones((0, columns))),
    "of_one_dimension": (("1 dimensions, not 2",), lambda columns: np.ones(NEW)),
    "of_three_dimensions": (("3 dimensions, not 2",), lambda columns: np.ones((NEW, columns, 1))),
    "of_text": (("not real numbers", "float64 or float32"), lambda columns: np.full((NEW, columns), b"1.5")),
    "of_complex_numbers": (("complex128", "float64 or float32"), lambda columns: np.ones((NEW, columns), complex)),
}
for name, (said, values) in OTHER.items():

    def other_dataset(files: Files, dataset: str, values: Callable = values) -> None:
        replace(files.new, dataset, values({"/X": Q, "/Y": D}[dataset]))

    other_dataset.__name__ = f"dataset_{name}"
    each("{new}", "{dataset}", *said)(other_dataset)


@each("{new}", "{dataset}", "cannot be read", "is the file whole?")
def dataset_damaged_in_the_rows_of_the_second_rank(files: Files, dataset: str) -> None:
    columns = {"/X": Q, "/Y": D}[dataset]
    replace(files.new, dataset, np.ones((NEW, columns)), chunks=(100, columns), fletcher32=True)
    damage(files.new, middle_of_chunk(files.new, dataset, 5))


@each("{new}", "{dataset}", "row 400 ", "Inf")
def dataset_with_inf_in_the_rows_of_two_ranks(files: Files, dataset: str) -> None:
    for row in (1008, 400, 700):
        change(files.new, dataset, (row, 1), np.inf)


@each("{new}", "{dataset}", "row 1008 ", "Inf")
def dataset_with_negative_inf_in_the_last_row(files: Files, dataset: str) -> None:
    change(files.new, dataset, (1008, 0), -np.inf)


@case("predict", "{new}", "/X", "row 400 ", "NaN or Inf")
def inputs_with_nan(files: Files) -> None:
    for row in (1008, 400, 700):
        change(files.new, "X", (row, 1), np.nan)


@case("predict", "{new}", "/X_variance", "row 650 ", "≥ 0")
def negative_variance(files: Files) -> None:
    replace(files.new, "X_variance", np.ones((NEW, Q)))
    change(files.new, "X_variance", (650, 1), -1e-9)


@case("predict", "{new}", "/X_variance", "row 350 ", "NaN or Inf", of="regression")
def variance_is_nan(files: Files) -> None:
    replace(files.new, "X_variance", np.ones((NEW, Q)))
    change(files.new, "X_variance", (350, 1), np.nan)


@case("predict", "{new}", "/X_variance", "(1008, 2)", "must be (1009, 2)")
def variances_of_fewer_rows(files: Files) -> None:
    replace(files.new, "X_variance", np.ones((NEW - 1, Q)))


@case("predict", "{new}", "/X_variance", "(1009, 3)", "must be (1009, 2)")
def variances_of_more_columns(files: Files) -> None:
    replace(files.new, "X_variance", np.ones((NEW, Q + 1)))


@case("predict", "{new}", "/X_variance", "1 dimensions, not 2", of="regression")
def one_variance_per_row(files: Files) -> None:
    replace(files.new, "X_variance", np.ones(NEW))


@case("predict", "{new}", "/Y", "(1008, 3)", "must be (1009, 3)")
def outputs_of_fewer_rows(files: Files) -> None:
    replace(files.new, "Y", np.ones((NEW - 1, D)))


@case("predict", "{new}", "/Y", "(1009, 4)", "must be (1009, 3)", of="regression")
def outputs_of_more_columns(files: Files) -> None:
    replace(files.new, "Y", np.ones((NEW, D + 1)))


@case("predict", "{new}", "/Y", "not real numbers")
def outputs_of_text(files: Files) -> None:
    replace(files.new, "Y", np.full((NEW, D), b"1.5"))


@case("predict", "{new}", "/Y", "row 640 ", "Inf")
def outputs_with_inf(files: Files) -> None:
    change(files.new, "Y", (640, 2), np.inf)


@case("predict", "{new}", "/truth", "no such dataset")
def outputs_to_score_against_missing(files: Files) -> list[object]:
    return ["--y", "truth"]


# the options and the output


@case("predict", "--samples", "-1")
def negative_samples(files: Files) -> list[object]:
    return ["--samples", "-1"]


@case("predict", "{new}", "/X", "5001", "5000", "--samples")
def samples_of_too_many_rows(files: Files) -> list[object]:
    replace(files.new, "X", np.ones((5001, Q)))
    replace(files.new, "Y", None)
    return ["--samples", "1"]


@case("predict", "{new}", "/X_variance", "--samples")
def samples_at_uncertain_inputs(files: Files) -> list[object]:
    replace(files.new, "X_variance", np.ones((NEW, Q)))
    return ["--samples", "1"]


@each("missing/result.h5", "does not exist", "create it")
def output_folder_missing(files: Files, dataset: str) -> list[object]:
    return ["-o", files.new.parent / "missing" / "result.h5"]


@each("/proc/result.h5", "not writable", "choose another output path")
def output_folder_that_takes_no_files(files: Files, dataset: str) -> list[object]:
    return ["-o", "/proc/result.h5"]


@each("{new}", "is an input", "choose another output path")
def output_is_the_new_rows(files: Files, dataset: str) -> list[object]:
    return ["-o", files.new]


@each("link.h5", "is an input", "choose another output path")
def output_is_the_model_by_another_name(files: Files, dataset: str) -> list[object]:
    link = files.model.with_name("link.h5")
    link.symlink_to(files.model)
    return ["-o", link]


@case("predict", "--seed", "-1")
def negative_seed(files: Files) -> list[object]:
    return ["--samples", "2", "--seed", "-1"]


# the tests


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A model of either kind."""
    folder = tmp_path_factory.mktemp("models")
    commands = []
    for model in ("regression", "gplvm"):
        inputs = write_inputs(folder / model, model, N, M, Q, D)
        commands.append(fit(inputs, folder / f"{model}.h5", model, "--max-iter", 3, "--hold", 1, m=M, q=Q))
    for (outcome,) in several(folder / "told", 1, commands):
        assert outcome.code == 0, outcome.stderr
    return {model: (folder / f"{model}.h5").read_bytes() for model in ("regression", "gplvm")}


def setting(folder: Path, case: Case, models: dict[str, bytes]) -> Setting:
    """Make good files, with which the command would work, and spoil them."""
    command, kind = str(case.options["command"]), str(case.options["of"])
    folder.mkdir(parents=True, exist_ok=True)
    files, output = Files(folder / "model.h5", folder / "new.h5"), folder / "result.h5"
    files.model.write_bytes(models[kind])
    rng = np.random.default_rng(51)
    with h5py.File(files.new, "w") as file:
        file["X"], file["Y"] = rng.normal(size=(NEW, Q)), rng.normal(size=(NEW, D))
    output.write_bytes(b"an earlier result")
    os.utime(output, (1, 1))
    more = case.spoil(files) or []
    words = [command, files.model, files.new, *([] if "-o" in more else ["-o", output]), *more]
    return Setting(folder, files._asdict() | {"output": output}, words)


@pytest.fixture(scope="module", params=[1, 3], ids="{} ranks".format)
def refused(
    request: pytest.FixtureRequest, models: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Refused]:
    """All cases, in one start of mpiexec."""
    folder = tmp_path_factory.mktemp("robust")
    return tried(folder, request.param, CASES, lambda folder, case: setting(folder, case, models))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_is_refused(case: Case, refused: dict[str, Refused]) -> None:
    assert_case_refused(case, refused[case.name])


@pytest.mark.parametrize("ranks", [None, 3])
@pytest.mark.parametrize("spoil", [inputs_with_nan, samples_of_too_many_rows], ids=lambda spoil: spoil.__name__)
def test_the_process_ends_with_code_2_and_one_line(
    spoil: Callable, ranks: int | None, models: dict[str, bytes], tmp_path: Path
) -> None:
    case = CASES.of(spoil)
    made = setting(tmp_path, case, models)
    before = state(tmp_path)
    assert_refused(run(ranks, *made.arguments), *made.expected(case))
    assert state(tmp_path) == before


def test_the_good_files_are_not_refused(models: dict[str, bytes], tmp_path: Path) -> None:
    """Else the cases above would be refused for nothing; NaN in /Y is no reason for `embed`."""

    def untouched(files: Files) -> None:
        change(files.new, "Y", (400, 1), 0.0 if command == "predict" else np.nan)

    commands = []
    for command, kind in [
        ("predict", "regression"),
        *((name, "gplvm") for name in ("predict", "embed", "reconstruct")),
    ]:
        case = Case("good", (), untouched, {"command": command, "of": kind})
        commands.append(setting(tmp_path / f"{command}-{kind}", case, models).arguments)
    for (outcome,) in several(tmp_path / "told", 1, commands):
        assert outcome.code == 0, outcome.stderr
