"""Good inputs of `evaluate` spoilt one way each, and what the line about it must hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from tests.support.inputs import Inputs, change, damage, middle_of_chunk, replace
from tests.support.refusals import (
    Cases,
)

N, M, Q, D = 1009, 5, 2, 3  # 16 chunks: with three ranks, rows 0 to 319, 320 to 639, and from 640
CASES = Cases()


def case(model: str, *said: str) -> Callable:
    """Register a function that spoils the inputs of a model, and may return more arguments."""
    return CASES.add(*said, model=model)


def truncate(path: Path, length: int) -> None:
    """Cut a file off; a negative length is counted from its end."""
    os.truncate(path, length % path.stat().st_size)


# the files


@case("gplvm", "{data}", "does not exist", "check the path")
def data_missing(inputs: Inputs) -> None:
    inputs.data.unlink()


@case("gplvm", "{params}", "does not exist", "check the path")
def parameters_missing(inputs: Inputs) -> None:
    inputs.params.unlink()


@case("gplvm", "{data}", "not a file", "name an HDF5 file")
def data_is_a_folder(inputs: Inputs) -> None:
    inputs.data.unlink()
    inputs.data.mkdir()


@case("regression", "{data}", "not an HDF5 file", "mpigp convert")
def data_is_a_table_of_text(inputs: Inputs) -> None:
    inputs.data.write_text("x,y\n1,2\n")


@case("regression", "{data}", "not an HDF5 file")
def data_is_empty(inputs: Inputs) -> None:
    truncate(inputs.data, 0)


@case("regression", "{data}", "cannot be read", "is the file whole?")
def data_end_in_the_header(inputs: Inputs) -> None:
    truncate(inputs.data, 60)


@case("regression", "{data}", "cannot be read", "is the file whole?")
def data_end_within_a_chunk(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.ones((N, D)), chunks=(100, D))
    truncate(inputs.data, middle_of_chunk(inputs.data, "Y", 5))


@case("gplvm", "{data}", "cannot be read", "is the file whole?")
def data_lack_the_last_byte(inputs: Inputs) -> None:
    truncate(inputs.data, -1)


@case("gplvm", "{params}", "cannot be read", "is the file whole?")
def parameters_end_half_way(inputs: Inputs) -> None:
    truncate(inputs.params, inputs.params.stat().st_size // 2)


@case("regression", "{data}", "/Y", "cannot be read", "is the file whole?")
def data_damaged_in_the_rows_of_the_second_rank(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.ones((N, D)), chunks=(100, D), fletcher32=True)
    damage(inputs.data, middle_of_chunk(inputs.data, "Y", 5))


@case("gplvm", "{params}", "/latent/mu", "cannot be read", "is the file whole?")
def parameters_damaged_in_the_rows_of_the_last_rank(inputs: Inputs) -> None:
    replace(inputs.params, "latent/mu", np.ones((N, Q)), chunks=(100, Q), fletcher32=True)
    damage(inputs.params, middle_of_chunk(inputs.params, "latent/mu", 9))


# the datasets of the data


@case("gplvm", "{data}", "/Y", "no such dataset", "--y")
def outputs_missing(inputs: Inputs) -> None:
    replace(inputs.data, "Y", None)


@case("regression", "{data}", "/X", "no such dataset", "--x")
def inputs_missing(inputs: Inputs) -> None:
    replace(inputs.data, "X", None)


@case("regression", "{data}", "/elsewhere/Y", "no such dataset", "--y")
def outputs_of_another_name_missing(inputs: Inputs) -> list[object]:
    return ["--y", "elsewhere/Y"]


@case("gplvm", "{data}", "/Y", "no such dataset", "--y")
def outputs_are_a_group(inputs: Inputs) -> None:
    replace(inputs.data, "Y", None)
    with h5py.File(inputs.data, "r+") as file:
        file.create_group("Y")


@case("gplvm", "{data}", "/Y", "1 dimensions, not 2", "(n, d)")
def outputs_of_one_dimension(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.ones(N))


@case("regression", "{data}", "/X", "3 dimensions, not 2", "(n, q)")
def inputs_of_three_dimensions(inputs: Inputs) -> None:
    replace(inputs.data, "X", np.ones((N, Q, 1)))


@case("regression", "{data}", "/X", "/Y", "1000", "1009", "as many")
def fewer_inputs_than_outputs(inputs: Inputs) -> None:
    replace(inputs.data, "X", np.ones((1000, Q)))


@case("gplvm", "{data}", "/Y", "(0, 3)", "at least one row")
def no_rows(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.ones((0, D)))


@case("gplvm", "{data}", "/Y", "(1009, 0)", "at least one row and one column")
def no_columns(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.ones((N, 0)))


@case("gplvm", "{data}", "/Y", "row 400 ", "NaN or Inf", "remove such rows or fill them in")
def nan_in_the_rows_of_two_ranks(inputs: Inputs) -> None:
    for row in (1008, 700, 400, 630):
        change(inputs.data, "Y", (row, 1), np.nan)


@case("regression", "{data}", "/X", "row 1008 ", "NaN or Inf", "remove such rows or fill them in")
def infinite_last_row(inputs: Inputs) -> None:
    change(inputs.data, "X", (1008, 0), -np.inf)


@case("gplvm", "{data}", "/Y", "not real numbers", "float64 or float32")
def outputs_are_text(inputs: Inputs) -> None:
    replace(inputs.data, "Y", np.full((N, D), b"1.5"))


@case("regression", "{data}", "/X", "complex128", "not real numbers", "float64 or float32")
def inputs_are_complex(inputs: Inputs) -> None:
    replace(inputs.data, "X", np.ones((N, Q), complex))


# the parameters


@case("gplvm", "{params}", "model", "regression, gplvm")
def model_not_named(inputs: Inputs) -> None:
    with h5py.File(inputs.params, "r+") as file:
        del file.attrs["model"]


@case("gplvm", "{params}", "model", "'pca'", "regression, gplvm")
def model_unknown(inputs: Inputs) -> None:
    with h5py.File(inputs.params, "r+") as file:
        file.attrs["model"] = "pca"


@case("gplvm", "{params}", "model", "regression, gplvm")
def model_is_a_list(inputs: Inputs) -> None:
    with h5py.File(inputs.params, "r+") as file:
        file.attrs["model"] = ["gplvm", "regression"]


@case("gplvm", "{params}", "jitter", "number")
def jitter_is_text(inputs: Inputs) -> None:
    with h5py.File(inputs.params, "r+") as file:
        file.attrs["jitter"] = "small"


@case("regression", "{params}", "/Z", "no such dataset", "(m, q)")
def inducing_points_missing(inputs: Inputs) -> None:
    replace(inputs.params, "Z", None)


@case("gplvm", "{params}", "/latent/S", "no such dataset", "(n, q)")
def latent_variances_missing(inputs: Inputs) -> None:
    replace(inputs.params, "latent/S", None)


@case("regression", "{params}", "/Z", "1 dimensions, not 2", "(m, q)")
def inducing_points_of_one_dimension(inputs: Inputs) -> None:
    replace(inputs.params, "Z", np.ones(M))


@case("regression", "{params}", "/Z", "(0, 2)", "at least one inducing point")
def no_inducing_points(inputs: Inputs) -> None:
    replace(inputs.params, "Z", np.ones((0, Q)))


@case("regression", "{params}", "/Z", "NaN or Inf", "finite")
def inducing_point_is_nan(inputs: Inputs) -> None:
    change(inputs.params, "Z", (0, 0), np.nan)


@case("regression", "{params}", "/Z", "{data}", "/X", "must agree")
def inducing_points_have_another_width_than_the_inputs(inputs: Inputs) -> None:
    replace(inputs.params, "Z", np.ones((M, Q + 1)))
    replace(inputs.params, "kernel/alpha", np.ones(Q + 1))


@case("gplvm", "{params}", "/kernel/alpha", "/Z", "must agree")
def too_many_weights(inputs: Inputs) -> None:
    replace(inputs.params, "kernel/alpha", np.ones(Q + 1))


@case("gplvm", "{params}", "/latent/mu", "(1008, 2)", "(1009, 2)")
def too_few_latent_means(inputs: Inputs) -> None:
    replace(inputs.params, "latent/mu", np.ones((N - 1, Q)))


@case("gplvm", "{params}", "/latent/S", "(1009, 3)", "(1009, 2)")
def latent_variances_too_wide(inputs: Inputs) -> None:
    replace(inputs.params, "latent/S", np.ones((N, Q + 1)))


@case("gplvm", "{params}", "/latent/mu", "row 350 ", "NaN or Inf")
def latent_means_are_nan(inputs: Inputs) -> None:
    change(inputs.params, "latent/mu", (slice(350, None), 1), np.nan)


@case("gplvm", "{params}", "/latent/S", "row 400 ", "> 0")
def latent_variance_is_zero_on_two_ranks(inputs: Inputs) -> None:
    change(inputs.params, "latent/S", (900, 0), 0.0)
    change(inputs.params, "latent/S", (400, 0), 0.0)


@case("gplvm", "{params}", "/latent/S", "row 1008 ", "> 0")
def last_latent_variance_is_negative(inputs: Inputs) -> None:
    change(inputs.params, "latent/S", (1008, 1), -0.1)


@case("regression", "{params}", "/kernel/alpha", "entry 1 ", "≥ 0")
def weight_is_negative(inputs: Inputs) -> None:
    change(inputs.params, "kernel/alpha", 1, -1e-300)


@case("gplvm", "{params}", "/beta", "is 0", "> 0")
def noise_precision_is_zero(inputs: Inputs) -> None:
    change(inputs.params, "beta", (), 0.0)


@case("regression", "{params}", "/beta", "is -2", "> 0")
def noise_precision_is_negative(inputs: Inputs) -> None:
    change(inputs.params, "beta", (), -2.0)


@case("regression", "{params}", "/kernel/variance", "is 0", "> 0")
def kernel_variance_is_zero(inputs: Inputs) -> None:
    change(inputs.params, "kernel/variance", (), 0.0)


@case("gplvm", "{params}", "/standardize/y_scale", "2 entries", "3 columns")
def standardisation_does_not_fit(inputs: Inputs) -> None:
    replace(inputs.params, "standardize/y_mean", np.zeros(D))
    replace(inputs.params, "standardize/y_scale", np.ones(D - 1))


@case("gplvm", "{params}", "/standardize/y_mean", "both mean and scale")
def standardisation_without_its_mean(inputs: Inputs) -> None:
    replace(inputs.params, "standardize/y_scale", np.ones(D))


# the output


@case("gplvm", "missing/gradient.h5", "does not exist", "create it")
def output_folder_missing(inputs: Inputs) -> list[object]:
    return ["-o", inputs.data.parent / "missing" / "gradient.h5"]


@case("gplvm", "{data}/gradient.h5", "create it or choose another output path")
def output_below_a_file(inputs: Inputs) -> list[object]:
    return ["-o", inputs.data / "gradient.h5"]


@case("gplvm", "is a folder", "name a file")
def output_is_a_folder(inputs: Inputs) -> list[object]:
    return ["-o", inputs.data.parent]


@case("regression", "/proc/gradient.h5", "not writable", "choose another output path")
def output_folder_that_takes_no_files(inputs: Inputs) -> list[object]:
    """No permission bit says so, and the superuser cannot write there either."""
    return ["-o", "/proc/gradient.h5"]


@case("regression", "{data}", "choose another output path")
def output_is_the_data(inputs: Inputs) -> list[object]:
    return ["-o", inputs.data]


# the options


@case("gplvm", "--jitter", "≥ 0")
def jitter_is_negative(inputs: Inputs) -> list[object]:
    return ["--jitter=-1e-8"]


@case("gplvm", "--repeat", "-1", "≥ 0")
def repeats_are_negative(inputs: Inputs) -> list[object]:
    return ["--repeat", "-1"]


@case("gplvm", "--threads", "≥ 1")
def no_threads(inputs: Inputs) -> list[object]:
    return ["--threads", "0"]


@case("gplvm", "--frobnicate", "--help")
def unknown_flag(inputs: Inputs) -> list[object]:
    return ["--frobnicate"]


@case("gplvm", "{data}.toml", "cannot be read", "check the path of --config")
def configuration_missing(inputs: Inputs) -> list[object]:
    return ["--config", f"{inputs.data}.toml"]


@case("gplvm", "bad.toml", "not TOML")
def configuration_is_no_toml(inputs: Inputs) -> list[object]:
    path = inputs.data.with_name("bad.toml")
    path.write_text("repeat: 3\n")
    return ["--config", path]


@case("gplvm", "{data}", "not TOML")
def configuration_is_no_text(inputs: Inputs) -> list[object]:
    return ["--config", inputs.data]


@case("gplvm", "odd.toml", "frobnicate", "--help")
def configuration_with_an_unknown_option(inputs: Inputs) -> list[object]:
    path = inputs.data.with_name("odd.toml")
    path.write_text("frobnicate = 3\n")
    return ["--config", path]


@case("gplvm", "table.toml", "[evaluate]", "without tables")
def configuration_with_a_table(inputs: Inputs) -> list[object]:
    path = inputs.data.with_name("table.toml")
    path.write_text("[evaluate]\nrepeat = 3\n")
    return ["--config", path]
