"""Model files to report on, and the pages made of them, taken apart."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from mpigp.cli import main
from mpigp.mpi.timers import PHASES

CYCLE = 5  # labels, which follow one another row by row


class Page(NamedTuple):
    """A page: its source, its text without marks, and what its script draws."""

    path: Path
    source: str
    text: str
    drawn: dict[str, Any]


def write_gplvm(
    folder: Path, n: int, q: int = 3, d: int = 2, ranks: int = 2, iterations: int = 40
) -> tuple[Path, Path]:
    """Write a GPLVM's model file, not learnt but of the right form, and the data that it might be of."""
    folder.mkdir(parents=True, exist_ok=True)
    model, data = folder / "model.h5", folder / "data.h5"
    rng = np.random.default_rng(n)
    labels = np.arange(n) % CYCLE
    with h5py.File(model, "w") as file:
        file.attrs.update(
            format="mpigp-model", version=1, model="gplvm", n=n, jitter=1e-6, seed=7, mpigp="0.1.0",
            stopped="the gradient's norm fell below the tolerance", command="mpigp fit data.h5 -o 'a model.h5'",
            versions=json.dumps({"python": "3.11.9", "MPI": "Open MPI v5.0.11"}),
            machine=json.dumps({"cpu": "A CPU of the 1980s", "ranks": ranks, "threads": 1}),
        )  # fmt: skip
        file["Z"], file["beta"] = rng.normal(size=(6, q)), 25.0
        file["kernel/variance"], file["kernel/alpha"] = 1.44, np.roll(np.geomspace(2.0, 0.01, q), 1)
        file["latent/mu"] = rng.normal(size=(CYCLE, q))[labels] + 0.1 * rng.normal(size=(n, q))
        file["latent/S"] = rng.uniform(0.001, 0.02, size=(n, q))
        file["posterior/g"] = np.zeros((6, d))
        each = np.arange(iterations)
        file["trace/bound"], file["trace/gradient_norm"] = -1e5 * np.exp(-each) + each, 100 * np.exp(-each / 9)
        file["trace/seconds"], file["trace/evaluations"] = 0.5 * (each + 1), each + 2
        file["timing/phases"] = rng.uniform(1, 2, size=(ranks, len(PHASES)))
        file["timing/phases"].attrs["names"] = PHASES
        file["timing/rows"] = np.full(ranks, n // ranks)
    with h5py.File(data, "w") as file:
        file["Y"] = np.zeros((n, d), np.float32)
        file["labels"] = labels
        file["labels"].attrs["classes"] = list("abcde")
    return model, data


def write_regression(folder: Path, n: int, q: int, d: int = 1, inducing: int = 12) -> tuple[Path, Path]:
    """Write data and learn a regression of at most the first 200 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    model, data, few = folder / "model.h5", folder / "data.h5", folder / "few.h5"
    rng = np.random.default_rng([n, q, d])
    X = rng.uniform(-3, 3, size=(n, q))
    Y = 10 + 5 * np.sin(X @ rng.normal(size=(q, d))) + rng.normal(size=(n, d))
    for path, rows in ((data, n), (few, 200)):
        with h5py.File(path, "w") as file:
            file["X"], file["Y"] = X[:rows], Y[:rows]
            file["Y"].attrs["columns"] = [f"speed {column}" for column in range(d)]
    words = ["fit", few, "-o", model, "--model", "regression", "--inducing", inducing, "--max-iter", 60]
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 0
    return model, data


def report(model: Path, *options: object, output: str = "report.html") -> Page:
    """Make the report of a model, beside it."""
    path = model.parent / output
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in ("report", model, "-o", path, *options)])
    assert end.value.code == 0
    return read_page(path)


def read_page(path: Path) -> Page:
    source = path.read_text("utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert found
    body = re.sub(r"<(style|script)\b.*?</\1>", " ", source, flags=re.DOTALL)
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())
    return Page(path, source, text, json.loads(found[1]))


def write_metrics(path: Path, model: Path, first: int = 1) -> None:
    """Write the metrics of a fit from its trace, from an iteration on, and one behind its checkpoint."""
    with h5py.File(model) as file, path.open("w") as out:
        for iteration, bound in enumerate(file["trace/bound"][()].tolist(), 1):
            if iteration >= first:
                record = {"iteration": iteration, "bound": bound, "compute": 0.5, "wait": 0.3, "messages": 0.2}
                out.write(json.dumps(record) + "\n")
        out.write(json.dumps(record | {"iteration": iteration + 1, "bound": 0.0}) + "\n")  # behind the checkpoint
