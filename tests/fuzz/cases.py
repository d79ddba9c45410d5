"""The command lines that read a mutated file: FILE stands for it, OUT for an output that exists already.

All of them succeed with a file that was not mutated.
"""

from __future__ import annotations

SHORT = ["--inducing", "4", "--max-iter", "2", "--hold", "1", "--overwrite", "-o", "OUT"]
REGRESSION = ["--model", "regression", *SHORT]
GPLVM = ["--model", "gplvm", "--latent", "2", *SHORT]
# `--resume` goes on from the mutated model itself.
RESUMED = [*(word.replace("OUT", "FILE") for word in REGRESSION), "--max-iter", "4", "--resume"]
RESUMED_GPLVM = [*(word.replace("OUT", "FILE") for word in GPLVM), "--max-iter", "4", "--resume"]

INPUTS = [
    ["fit", "FILE", *REGRESSION],
    ["fit", "FILE", *REGRESSION, "--standardize", "none"],
    ["fit", "FILE", *REGRESSION, "--placement", "kmeans", "--standardize", "center", "--optimizer", "scg"],
    ["fit", "FILE", *REGRESSION, "--rows-in-memory", "stream", "--bound", "rows"],
    ["fit", "FILE", *REGRESSION, "--kernel", "matern52", "--dry-run"],
    ["evaluate", "FILE", "--params", "regression_model.h5", "-o", "OUT", "--bound", "sphere"],
    ["predict", "regression_model.h5", "FILE", "-o", "OUT"],
    ["predict", "gplvm_model.h5", "FILE", "-o", "OUT", "--samples", "2"],
    ["report", "regression_model.h5", "--data", "FILE", "-o", "OUT"],
    ["info", "FILE"],
]
MISSING = [
    ["fit", "FILE", *GPLVM, "--standardize", "none", "--missing", "--optimizer", "gd", "--bound", "rows"],
    ["embed", "gplvm_model.h5", "FILE", "-o", "OUT"],
    ["reconstruct", "missing_model.h5", "FILE", "-o", "OUT"],
    ["report", "gplvm_model.h5", "--data", "FILE", "-o", "OUT"],
]
OUTPUTS = [
    ["fit", "FILE", *GPLVM],
    ["evaluate", "FILE", "--params", "gplvm_model.h5", "--rows-in-memory", "stream"],
    *MISSING,
]
MODEL = [
    ["predict", "FILE", "regression.h5", "-o", "OUT"],
    ["predict", "FILE", "regression.h5", "-o", "OUT", "--samples", "2"],
    ["report", "FILE", "-o", "OUT"],
    ["info", "FILE", "--json"],
    ["load", "FILE"],
]
MODEL_OF_INPUTS = [
    *MODEL,
    ["evaluate", "regression.h5", "--params", "FILE", "-o", "OUT"],
    ["report", "FILE", "-o", "OUT", "--data", "regression.h5"],
]
MODEL_OF_OUTPUTS = [
    *MODEL,
    ["evaluate", "gplvm.h5", "--params", "FILE", "-o", "OUT"],
    ["embed", "FILE", "missing.h5", "-o", "OUT"],
    ["reconstruct", "FILE", "missing.h5", "-o", "OUT"],
    ["report", "FILE", "-o", "OUT", "--data", "gplvm.h5"],
    ["fit", "gplvm.h5", *GPLVM, "--init", "FILE"],
]


def convert(*options: str) -> list[str]:
    return ["convert", "FILE", "-o", "OUT", *options]


CHOSEN = convert("--x-columns", "0", "--y-columns", "1,2", "--dtype", "float32")
CASES: dict[str, list[list[str]]] = {
    "regression.h5": INPUTS,
    "compressed.h5": [*INPUTS, *OUTPUTS],
    "gplvm.h5": [*OUTPUTS, ["info", "FILE"]],
    "missing.h5": MISSING,
    "regression_model.h5": [*MODEL_OF_INPUTS, *[["fit", "regression.h5", *RESUMED]] * 3],
    "matern_model.h5": [*MODEL_OF_INPUTS, ["fit", "regression.h5", *RESUMED, "--kernel", "matern52"]],
    "gplvm_model.h5": [*MODEL_OF_OUTPUTS, *[["fit", "gplvm.h5", *RESUMED_GPLVM]] * 3],
    "missing_model.h5": [*MODEL_OF_OUTPUTS, ["fit", "missing.h5", *RESUMED_GPLVM, "--missing"]],
    "result.h5": [["info", "FILE"]],
    "gradients.h5": [["info", "FILE"]],
    "metrics.jsonl": [["report", "missing_model.h5", "-o", "OUT", "--metrics", "FILE"]],
    "table.csv": [CHOSEN, convert("--labels", "5"), convert("--labels", "kind", "--header", "yes")],
    "table.npy": [CHOSEN, convert(), convert("--labels", "4")],
    "table.npz": [CHOSEN, convert(), convert("--labels", "labels", "--x-columns", "X")],
    "stored.npz": [CHOSEN, convert(), convert("--x-columns", "Y")],
    "table.parquet": [CHOSEN, convert("--labels", "5"), convert("--labels", "kind", "--y-columns", "c1,count")],
}
# How often a file is chosen: those with much to go wrong in them more often.
WEIGHTS = {name: 3.0 if "model" in name else 0.5 if len(words) == 1 else 1.0 for name, words in CASES.items()}
