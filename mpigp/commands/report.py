"""Write one self-contained HTML page that shows a fitted model: figures, tables, and how it was made."""

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mpigp.data.columns import check_rows, note_of, tell
from mpigp.data.datasets import find
from mpigp.data.hdf5 import reading
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, replacing
from mpigp.files.model_file import KERNEL, ModelFile, open_model
from mpigp.report.comparison import predictions, read_labels
from mpigp.report.figures import Figures
from mpigp.report.fitted import read_fitted, read_metrics
from mpigp.report.page import render
from mpigp.report.panels import Report, describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp report`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="HDF5 file that `mpigp fit` wrote")
    add("-o", "--output", required=True, metavar="HTML", help="the page to write")
    add("--png", metavar="DIR", help="write the figures as PNG files to this folder too; needs matplotlib")
    add("--data", metavar="DATA", help="regression: data to predict; GPLVM: the data it was learned from, for labels")
    add("--labels", metavar="NAME", help="GPLVM: dataset of DATA with the labels (default labels, where there is one)")
    add("--x", metavar="NAME", help="regression: dataset of the inputs (default X)")
    add("--y", metavar="NAME", help="dataset of the outputs (default Y)")
    add("--metrics", metavar="FILE.jsonl", help="what `mpigp fit --metrics` wrote")
    add("--kernel", metavar="NAME", help=KERNEL)


@np.errstate(all="ignore")  # figures leave out what is not finite
def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Read all, then write."""
    for option in ("labels", "x", "y"):
        if getattr(arguments, option) and not arguments.data:
            raise InputError(f"--{option}: names a dataset of --data, which is missing: give both")
    check_outputs(arguments, *filter(None, (arguments.model, arguments.data, arguments.metrics)))
    with open_model(arguments.model) as file:
        report = Report(read_fitted(file), metrics=read_metrics(arguments.metrics, file) if arguments.metrics else None)
        if arguments.data:
            report = compared(report, arguments, file)
    drawn = describe(report)
    return figures(report) | {"written": write(arguments, render(report, drawn), drawn)}


def check_outputs(arguments: argparse.Namespace, *inputs: str) -> None:
    """Refuse a page or a folder of pictures that cannot be written, and to begin without what draws the pictures."""
    if arguments.output is not None:
        check_writable(arguments.output, *inputs)
    if not arguments.png:
        return
    if find_spec("matplotlib") is None:
        raise InputError("--png: needs matplotlib: pip install 'mpigp[report]'")
    if not Path(arguments.png).is_dir():
        raise InputError(f"{arguments.png}: is no folder: create it, or choose another with --png")
    check_writable(Path(arguments.png) / "figure.png")


def write(arguments: argparse.Namespace, page: str, drawn: Figures) -> list[str]:
    """Write a page, and its figures as pictures, where asked to; print and return the paths."""
    written = []
    if arguments.output is not None:
        with replacing(arguments.output) as temporary:
            temporary.write_text(page, "utf-8")
        written.append(arguments.output)
    if arguments.png:
        from mpigp.report.pictures import save

        written += save(drawn, Path(arguments.png))
    print("\n".join(written))
    return written


def compared(report: Report, arguments: argparse.Namespace, model: ModelFile) -> Report:
    """Return the report with a GPLVM's labels, or the predictions of a regression, for the data that are given."""
    fitted, regression = report.fitted, report.fitted.model == "regression"
    with reading(arguments.data) as file:
        if regression and arguments.labels:
            raise InputError("--labels: colors the latent space of a GPLVM, and this is a regression: leave it out")
        if not regression and arguments.x:
            raise InputError("--x: names the inputs of a regression, and this is a GPLVM: leave it out")
        data = find(file, arguments.y or "Y", (arguments.x or "X") if regression else None)
        data = data.matched(model.columns(), arguments.model)
        if fitted.d is not None:
            check_rows(data.Y, fitted.d, f"the outputs of {arguments.model}")
        if data.X is not None:
            check_rows(data.X, fitted.parameters.Z.shape[1], f"the inputs of {arguments.model}")
        if regression:
            report = report._replace(predictions=predictions(model.posterior(arguments.kernel), data))
            tell(note_of(data.X), note_of(data.Y))
            return report
        assert fitted.latent is not None
        if data.n != fitted.n:
            differ = f"has {data.n} rows, the model {fitted.n}"
            raise InputError(f"{arguments.data}: {data.Y.name}: {differ}: give the data it was learned from")
        return report._replace(labels=read_labels(file, arguments.labels, fitted.latent.rows, fitted.n))


def figures(report: Report) -> dict[str, Any]:
    """Return the figures of the command."""
    fitted, predicted = report.fitted, report.predictions
    values = {
        "model": fitted.model,
        "n": fitted.n,
        "alpha": fitted.parameters.alpha.tolist(),
        "kernel": fitted.kernel,
    } | fitted.last
    values["columns"] = fitted.columns
    if fitted.latent is not None:
        values["rows_drawn"] = len(fitted.latent.rows)
    if fitted.validation is not None:
        _, rmse, nlpd = (series[-1].item() for series in fitted.validation)
        values |= {"validation_rmse": rmse, "validation_nlpd": nlpd}
    if fitted.timing is not None:
        values["balance"] = fitted.balance
    if predicted is not None:
        values["rows_drawn"] = len(predicted.rows)
        values |= {name: getattr(predicted, name).tolist() for name in ("rmse", "nlpd", "inside")}
    return values
