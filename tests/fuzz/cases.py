"""The command lines that read a mutated file: FILE stands for it, OUT for an output that exists already."""

from __future__ import annotations

SHORT = ["--inducing", "4", "--max-iter", "2", "--hold", "1", "--overwrite", "-o", "OUT"]
REGRESSION = ["--model", "regression", *SHORT]
GPLVM = ["--model", "gplvm", "--latent", "2", *SHORT]
# `--resume` goes on from the mutated model itself.
RESUMED = [*(word.replace("OUT", "FILE") for word in REGRESSION), "--max-iter", "4", "--resume"]
RESUMED_GPLVM = [*(word.replace("OUT", "FILE") for word in GPLVM), "--max-iter", "4", "--resume"]

DATA = [
    ["fit", "FILE", *REGRESSION],
    ["fit", "FILE", *REGRESSION, "--standardize", "none"],
    ["fit", "FILE", *REGRESSION, "--placement", "kmeans", "--standardize", "center", "--optimizer", "scg"],
    ["fit", "FILE", *REGRESSION, "--rows-in-memory", "stream"],
    ["fit", "FILE", *REGRESSION, "--kernel", "matern52"],
    ["fit", "FILE", *GPLVM],
    ["fit", "FILE", *GPLVM, "--standardize", "none", "--missing", "--optimizer", "gd"],
    ["evaluate", "FILE", "--params", "regression_model.h5", "-o", "OUT"],
    ["evaluate", "FILE", "--params", "gplvm_model.h5", "--rows-in-memory", "stream"],
    ["predict", "regression_model.h5", "FILE", "-o", "OUT"],
    ["predict", "gplvm_model.h5", "FILE", "-o", "OUT", "--samples", "2"],
    ["embed", "gplvm_model.h5", "FILE", "-o", "OUT"],
    ["reconstruct", "missing_model.h5", "FILE", "-o", "OUT"],
    ["report", "regression_model.h5", "--data", "FILE", "-o", "OUT"],
    ["report", "gplvm_model.h5", "--data", "FILE", "-o", "OUT"],
    ["info", "FILE"],
]
MODEL = [
    ["evaluate", "regression.h5", "--params", "FILE", "-o", "OUT"],
    ["evaluate", "gplvm.h5", "--params", "FILE", "-o", "OUT"],
    ["predict", "FILE", "regression.h5", "-o", "OUT"],
    ["predict", "FILE", "regression.h5", "-o", "OUT", "--samples", "2"],
    ["embed", "FILE", "missing.h5", "-o", "OUT"],
    ["reconstruct", "FILE", "missing.h5", "-o", "OUT"],
    ["report", "FILE", "-o", "OUT"],
    ["report", "FILE", "-o", "OUT", "--data", "regression.h5"],
    ["report", "FILE", "-o", "OUT", "--data", "gplvm.h5"],
    ["fit", "gplvm.h5", *GPLVM, "--init", "FILE"],
    ["info", "FILE", "--json"],
    ["load", "FILE"],
]
TABLE = [
    ["convert", "FILE", "-o", "OUT"],
    ["convert", "FILE", "-o", "OUT", "--y-columns", "0,1", "--dtype", "float32"],
    ["convert", "FILE", "-o", "OUT", "--labels", "5"],
]

CASES: dict[str, list[list[str]]] = {
    "regression.h5": DATA,
    "compressed.h5": DATA,
    "gplvm.h5": DATA,
    "missing.h5": DATA,
    "regression_model.h5": [*MODEL, ["fit", "regression.h5", *RESUMED]],
    "matern_model.h5": [*MODEL, ["fit", "regression.h5", *RESUMED, "--kernel", "matern52"]],
    "gplvm_model.h5": [*MODEL, ["fit", "gplvm.h5", *RESUMED_GPLVM]] * 2,
    "missing_model.h5": [*MODEL, ["fit", "missing.h5", *RESUMED_GPLVM, "--missing"]],
    "result.h5": [["info", "FILE"]],
    "gradients.h5": [["info", "FILE"]],
    "metrics.jsonl": [["report", "missing_model.h5", "-o", "OUT", "--metrics", "FILE"]],
    "table.csv": [*TABLE, ["convert", "FILE", "-o", "OUT", "--labels", "kind", "--header", "yes"]],
    "table.npy": TABLE,
    "table.npz": [*TABLE, ["convert", "FILE", "-o", "OUT", "--labels", "labels", "--x-columns", "X"]],
    "stored.npz": TABLE,
    "table.parquet": [*TABLE, ["convert", "FILE", "-o", "OUT", "--labels", "kind"]],
}
# How often a file is chosen: those with much to go wrong in them more often.
WEIGHTS = {name: 3.0 if "model" in name else 0.5 if len(words) == 1 else 1.0 for name, words in CASES.items()}
