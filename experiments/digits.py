"""Handwritten digits classified by densities: a GPLVM of each class, and the class under which a digit is likeliest.

A test digit y goes to the class c with the largest  log p(y|c) + log p(c),  where p(y|c) is the density under the
class's GPLVM (density.py), and p(c) the class's share of the training digits. Digits are centred and not scaled, so
that the densities of all classes are in the same units. Beside it stand the same with the bound of log p(y|c) that
embedding gives (mpigp.gp.embedding); probabilistic PCA of each class, with as many latent dimensions; and the nearest
training digit, by its pixels.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from experiments.command import main, option
from experiments.density import log_densities
from experiments.fits import check_counts, figures, fitted, nearest
from experiments.source import Source, read_labels
from mpigp.data.hdf5 import dataset, read_rows, reading
from mpigp.errors import InputError
from mpigp.gp.embedding import candidates, embed
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

Labels = NDArray[np.int64]
Found = dict[str, Any]

SUMMARY = "digits classified by a GPLVM of each class"
NEEDS = {"matplotlib": "report", "sklearn": "sklearn"}
PARALLEL = True
HOLDS = "the training digits /Y (n, pixels) and /labels (n,), and the test digits /Ytest and /labels_test"


@dataclass(frozen=True)
class Study:
    """The options."""

    inducing: int = option(100, "M", "inducing points of the GPLVM of each class")
    latent: int = option(10, "Q", "latent dimensions")
    iterations: int = option(500, "N", "iterations of each fit at most")
    seed: int = option(0, "S", "seed of everything random")
    jitter: float = option(1e-6, "J", "jitter on the diagonal of K_mm")


class Digits(NamedTuple):
    """Images (n, pixels) and labels (n,), to learn from and to test on; and the classes."""

    Y: Floats
    labels: Labels
    Y_test: Floats
    labels_test: Labels

    @property
    def classes(self) -> Labels:
        return np.unique(self.labels)


def read(path: str) -> Digits:
    """Return the digits of a file, checked."""
    with reading(path) as file:
        Y, Y_test = (dataset(file, name, 2, f"the file holds {HOLDS}") for name in ("Y", "Ytest"))
        if Y.shape[1] != Y_test.shape[1] or 0 in Y.shape + Y_test.shape:
            raise InputError(f"{path}: /Y has shape {Y.shape} and /Ytest {Y_test.shape}: there must be digits, of as "
                             "many pixels")  # fmt: skip
        digits = Digits(
            read_rows(Y, 0, len(Y)),
            read_labels(file, "labels", len(Y)),
            read_rows(Y_test, 0, len(Y_test)),
            read_labels(file, "labels_test", len(Y_test)),
        )
    counts = np.unique(digits.labels, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < 2:
        raise InputError(f"{path}: /labels: there must be two classes at least, and two digits of each")
    if unknown := set(digits.labels_test.tolist()) - set(digits.labels.tolist()):
        raise InputError(f"{path}: /labels_test: holds {min(unknown)}, which /labels does not: remove such digits")
    return digits


def conduct(comm: Comm, study: Study, source: Source, threads: int) -> Found | None:
    """Learn every class, and classify."""
    with raise_on_all_ranks(comm):
        digits = read(source.file("digits", HOLDS))
        check_counts(study, "inducing", "latent", "iterations")
        if study.latent >= digits.Y.shape[1]:
            raise InputError(f"--latent: is {study.latent}, but a digit has {digits.Y.shape[1]} pixels: give fewer")
        if study.latent > np.unique(digits.labels, return_counts=True)[1].min():
            raise InputError(f"--latent: is {study.latent}: give at most as many as the smallest class has digits")
    with tqdm(digits.classes, unit="class", disable=None if comm.rank == 0 else True) as classes:
        models = [learn(comm, digits, label, study, threads) for label in classes]
    began = time.perf_counter()
    scores = judge(comm, digits, models, study.seed, threads)
    seconds = time.perf_counter() - began
    if scores is None:
        return None
    fits = [{"label": int(label), "digits": int((digits.labels == label).sum()), **figures(model)}
            for label, model in zip(digits.classes, models, strict=True)]  # fmt: skip
    name = f"GPLVM of each class, q = {study.latent}, m = {study.inducing}"
    choices = {
        name: choose(digits, scores[0]),
        f"{name}, by bounds": choose(digits, scores[1]),
        f"PPCA of each class, q = {study.latent}": choose(digits, linear(digits, study)),
        "nearest neighbour in pixels": digits.labels[nearest(digits.Y_test, digits.Y)],
    }
    return {
        "study": asdict(study),
        "shape": list(digits.Y.shape),
        "test": len(digits.Y_test),
        "table": [{"method": method, **errors(chosen, digits)} for method, chosen in choices.items()],
        "fits": fits,
        "densities": {"seconds": seconds},
        "runs": {
            "labels": digits.labels_test.tolist(),
            "chosen": {key: each.tolist() for key, each in choices.items()},
        },
    }


def learn(comm: Comm, digits: Digits, label: int, study: Study, threads: int) -> Any:
    """Return the model of a class."""
    from mpigp.estimators import BayesianGPLVM

    return fitted(
        BayesianGPLVM(study.inducing, latent=study.latent, max_iter=study.iterations, standardize="center",
                      jitter=study.jitter, random_state=study.seed, threads=threads, comm=comm),
        digits.Y[digits.labels == label],
    )  # fmt: skip


def judge(comm: Comm, digits: Digits, models: list[Any], seed: int, threads: int) -> Floats | None:
    """Return the log densities of the test digits under each class, and their bounds (2, n_test, classes), on rank 0.

    A rank takes whole classes, so that no bit depends on how many ranks there are.
    """
    mine = {}
    for place in range(comm.rank, len(models), comm.size):
        model, rng = models[place], np.random.default_rng([seed, place])
        starts = candidates(model.embedding_, model.embedding_variance_)
        found = embed(model.posterior_, starts, digits.Y_test, threads)
        density = log_densities(model.posterior_, found, model.posterior_.outputs(digits.Y_test), rng)
        mine[place] = np.stack([density, found.bound])
    gathered = comm.gather(mine)
    if gathered is None:
        return None
    everything = {place: scores for part in gathered for place, scores in part.items()}
    return np.stack([everything[place] for place in range(len(models))], axis=2)


def linear(digits: Digits, study: Study) -> Floats:
    """Return the log densities (n_test, classes) of the test digits under probabilistic PCA of each class."""
    from sklearn.decomposition import PCA
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return np.stack(
            [PCA(study.latent, svd_solver="full").fit(digits.Y[digits.labels == label]).score_samples(digits.Y_test)
             for label in digits.classes], axis=1
        )  # fmt: skip


def choose(digits: Digits, scores: Floats) -> Labels:
    """Return the likeliest class (n_test,), from log densities (n_test, classes) given the class."""
    counts = np.unique(digits.labels, return_counts=True)[1]
    return digits.classes[np.argmax(scores + np.log(counts / counts.sum()), axis=1)]


def errors(chosen: Labels, digits: Digits) -> Found:
    """Return the share of test digits in a wrong class; `wrong`, their number; and `by_class`, those of each class."""
    wrong = chosen != digits.labels_test
    by_class = {int(label): int(wrong[digits.labels_test == label].sum()) for label in digits.classes}
    return {"error": float(wrong.mean()), "wrong": int(wrong.sum()), "by_class": list(by_class.values())}


def shown(found: Found) -> list[str]:
    """Return the table as lines."""
    n, d = found["shape"]
    labels = [each["label"] for each in found["fits"]]
    lines = [f"{n} training digits of {d} pixels, {found['test']} test digits",
             f"{'':48}{'error':>8}{'wrong':>7}   of " + "".join(f"{label:5d}" for label in labels)]  # fmt: skip
    lines += [
        f"{each['method']:48}{each['error']:8.2%}{each['wrong']:7d}      "
        + "".join(f"{k:5d}" for k in each["by_class"])
        for each in found["table"]
    ]
    fits = found["fits"]
    return [
        *lines,
        f"fits of {sum(each['digits'] for each in fits) // len(fits)} digits on average: "
        f"{sum(each['seconds'] for each in fits):.1f} s, {sum(each['evaluations'] for each in fits)} evaluations, "
        f"{sum(each['converged'] for each in fits)} of {len(fits)} converged; "
        f"densities of test digits: {found['densities']['seconds']:.1f} s",
    ]


def picture(found: Found) -> Figure:
    """Return the errors, and which digits the GPLVMs take for which, by their densities."""
    from matplotlib.figure import Figure

    from mpigp.report.figures import COLORS

    figure = Figure(figsize=(9, 4), layout="constrained")
    bars, confusion = figure.subplots(1, 2, width_ratios=[1, 1.1])
    for place, each in enumerate(found["table"]):
        bars.barh(place, 100 * each["error"], color=COLORS[place], alpha=0.5)
        bars.text(0, place, f" {each['method']}: {each['error']:.1%}", va="center", fontsize=8)
    bars.set(xlabel="errors, % of the test digits", yticks=[])
    bars.invert_yaxis()
    labels = [each["label"] for each in found["fits"]]
    true, chosen = found["runs"]["labels"], next(iter(found["runs"]["chosen"].values()))
    counts = np.zeros((len(labels), len(labels)), int)
    np.add.at(counts, (np.searchsorted(labels, true), np.searchsorted(labels, chosen)), 1)
    wrong = counts * ~np.eye(len(labels), dtype=bool)
    confusion.imshow(wrong, cmap="Blues")
    for (row, column), count in np.ndenumerate(wrong):
        if count:
            confusion.text(column, row, str(count), ha="center", va="center", fontsize=8,
                           color="white" if count > 0.6 * wrong.max() else "black")  # fmt: skip
    confusion.set(title="wrong, by GPLVM", xlabel="taken for", ylabel="digit")
    confusion.set_xticks(range(len(labels)), labels)
    confusion.set_yticks(range(len(labels)), labels)
    return figure


if __name__ == "__main__":
    main("digits")
