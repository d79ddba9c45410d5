"""What the tests of `fit` share: its command lines, and files compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.mpi.test_same_bits import contents
from tests.support.inputs import Inputs
from tests.support.launching import several

OPTIMIZERS = ("lbfgs", "scg", "gd")
# All of a model file that may differ between two runs, because it tells of the run and not of the model: its clock, the
# rows of each rank (of other ranks others, by definition), its command line (with the output's name), and its ranks.
RUN = {"trace/seconds", "timing/phases", "timing/rows", "@command", "@machine"}


def fit(inputs: Inputs, output: Path, model: str, *options: object, m: int = 7, q: int = 2) -> list[object]:
    """Return the arguments of `mpigp fit`; later options override these."""
    latent = ["--latent", q] if model == "gplvm" else []
    return ["fit", inputs.data, "-o", output, "--model", model, "--inducing", m, "--overwrite", *latent, *options]


class Case(NamedTuple):
    """One command, under any number of ranks, that writes to the file behind it."""

    name: str
    arguments: list[object]


class Made(NamedTuple):
    """What the cases wrote, to FOLDER/NAME.h5, and their figures by name."""

    folder: Path
    figures: dict[str, dict]


def made(cases: list[Case], folder: Path, ranks: int, threads: int) -> Made:
    """Run all cases in one start of plain mpiexec."""
    commands = [[*case.arguments, "-o", folder / f"{case.name}.h5", "--json", "--threads", threads] for case in cases]
    figures = {}
    for case, outcomes in zip(cases, several(folder / "told", ranks, commands, threads), strict=True):
        assert [outcome.code for outcome in outcomes] == [0] * ranks, (case.name, outcomes)
        assert [outcome.stdout + outcome.stderr for outcome in outcomes[1:]] == [""] * (ranks - 1)
        figures[case.name] = outcomes[0].figures
    return Made(folder, figures)


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of all that two model files do not have in common, bit for bit, but for RUN."""
    first, second = contents(one), contents(other)
    both = (first.keys() & second.keys()) - RUN
    return sorted(first.keys() ^ second.keys()) + [
        name
        for name in sorted(both)
        if (first[name].dtype, first[name].shape) != (second[name].dtype, second[name].shape)
        or _bits(first[name]) != _bits(second[name])
    ]


def _bits(values) -> object:
    """Return what is equal only for equal bits: the bytes, or for text, which numpy keeps elsewhere, the text."""
    return values.tolist() if values.dtype.hasobject else values.tobytes()
