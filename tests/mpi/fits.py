"""What the tests of `fit` share: its command lines, and files compared bit for bit."""

from __future__ import annotations

from pathlib import Path

from inputs import Inputs
from test_same_bits import contents

OPTIMIZERS = ("lbfgs", "scg", "gd")
CLOCK = {"trace/seconds"}  # all of a model file that may differ between two runs


def fit(inputs: Inputs, output: Path, model: str, *options: object, m: int = 7, q: int = 2) -> list[object]:
    """Return the arguments of `mpigp fit`; later options override these."""
    latent = ["--latent", q] if model == "gplvm" else []
    return ["fit", inputs.data, "-o", output, "--model", model, "--inducing", m, *latent, *options]


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of all that two model files do not have in common, bit for bit, but for the clock."""
    first, second = contents(one), contents(other)
    both = (first.keys() & second.keys()) - CLOCK
    return sorted(first.keys() ^ second.keys()) + [
        name
        for name in sorted(both)
        if (first[name].dtype, first[name].shape) != (second[name].dtype, second[name].shape)
        or _bits(first[name]) != _bits(second[name])
    ]


def _bits(values) -> object:
    """Return what is equal only for equal bits: the bytes, or for text, which numpy keeps elsewhere, the text."""
    return values.tolist() if values.dtype.hasobject else values.tobytes()
