"""Synthetic data of any size, made in blocks of rows that depend on the seed and the block number alone.

Oil flow. A pipe of unit radius carries water, oil and gas. Six gamma beams cross it, three vertical and three
horizontal, each at two photon energies (Bishop and James 1993). A beam with a path of length x_p in phase p
lets through

    N_e ~ Poisson(N_0 exp(−Σ_p μ_ep x_p))        photons of energy e = 1, 2        (Beer and Lambert)

and, its chord c = x_w + x_o + x_g being known, its two counts are solved for two path lengths, its readings:

    −log(N_e / N_0) − μ_eg c = (μ_ew − μ_eg) x_w + (μ_eo − μ_eg) x_o

The two equations are nearly parallel: photon noise makes the readings of a beam err in opposite directions.

Regression. f(x) = √(2/F) Σ_k a_k cos(w_k·x + b_k), with w_k ~ N(0, diag α), b_k uniform and a_k ~ N(0, 1): a
draw from a process whose covariance is the unit RBF kernel with ARD weights α (random Fourier features).

The rows have the same bits on every CPU: sums are written out in their order, and all else is that of `portable`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.data import portable
from mpigp.types import Floats

BLOCK = 8192  # rows per block; another number makes other data
WATER, OIL, GAS = range(3)
CONFIGURATIONS = ("homogeneous", "annular", "stratified")  # the labels 0, 1, 2
COLUMNS = [f"beam {beam} {phase}" for beam in range(1, 7) for phase in ("water", "oil")]
PHOTONS = 8e6

# Linear attenuation per pipe radius of 2.6 cm: rows are the energies, about 81 and 356 keV (barium-133);
# columns are water, oil and gas, of densities 1, 0.83 and 0.05 g/cm³.
ATTENUATION = np.array([[0.476, 0.392, 0.026], [0.289, 0.246, 0.0165]])


class Beams(NamedTuple):
    """Where the beams cross the pipe: the distance of each from the center, signed."""

    vertical: Floats  # (v,) to the right of the center
    horizontal: Floats  # (h,) above the center


BEAMS = Beams(np.array([5.0, 3.0, 1.0]) / 6.0, np.array([-0.5, 0.0, 0.5]))


class RandomFunction(NamedTuple):
    """A smooth function of q inputs with d outputs of variance 1, as F cosines; angles are in turns of 2π."""

    frequencies: Floats  # (q, F)
    phases: Floats  # (F,)
    weights: Floats  # (F, d)


def generator(seed: int, *key: int) -> np.random.Generator:
    """The random numbers of one block: the same for the same seed and key, unrelated for any other."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def chords(beams: Beams = BEAMS) -> Floats:
    """Length of every beam inside the pipe, vertical beams first, (v + h,)."""
    return 2.0 * np.sqrt(1.0 - np.square(np.concatenate(beams)))


def layer_height(fraction: Floats) -> Floats:
    """Height in [−1, 1] below which the given fraction of the unit disc's area lies.

    The segment below h = −cos πt has the area π (t − sin(2πt)/2π), so t − sin(2πt)/2π = fraction: Kepler's equation,
    solved by Newton's method from the small-t series in the lower half of the disc; the upper mirrors it.
    """
    lower = np.minimum(fraction, 1.0 - fraction)
    some = lower > 0.0
    t = some * portable.exp(portable.log(np.where(some, 1.5 / np.pi**2 * lower, 1.0)) / 3.0)
    for _ in range(5):  # from at most 15 % off, each step squares the relative error
        slope = 1.0 - portable.cos(t)
        excess = t - portable.sin(t) / (2.0 * np.pi) - lower
        t -= np.divide(excess, slope, out=np.zeros_like(t), where=slope > 0.0)
    return np.copysign(portable.cos(0.5 * t), fraction - 0.5)


def homogeneous(fractions: Floats, beams: Beams = BEAMS) -> Floats:
    """Path lengths (n, v + h, 3) through phases that are mixed evenly, for area fractions (n, 3)."""
    return fractions[:, None, :] * chords(beams)[:, None]


def annular(fractions: Floats, beams: Beams = BEAMS) -> Floats:
    """Path lengths (n, v + h, 3) through a core of gas, a ring of oil around it, and water along the wall."""
    offsets = np.concatenate(beams)
    outer_squared = np.stack([np.ones(len(fractions)), 1.0 - fractions[:, WATER], fractions[:, GAS]], axis=1)
    # the chord inside each phase's outer radius; what lies inside the next radius belongs to the next phase
    inside = 2.0 * np.sqrt(np.maximum(outer_squared[:, None, :] - np.square(offsets)[:, None], 0.0))
    inside[:, :, :-1] -= inside[:, :, 1:]
    return inside


def stratified(fractions: Floats, beams: Beams = BEAMS) -> Floats:
    """Path lengths (n, v + h, 3) through layers: water at the bottom, oil upon it, gas on top."""
    half = 0.5 * chords(Beams(beams.vertical, np.empty(0)))
    tops = layer_height(np.stack([fractions[:, WATER], 1.0 - fractions[:, GAS]], axis=1))
    levels = np.concatenate([np.full((len(tops), 1), -1.0), tops, np.ones((len(tops), 1))], axis=1)
    vertical = np.diff(np.clip(levels[:, None, :], -half[:, None], half[:, None]), axis=2)
    # a horizontal beam stays in one phase
    layer = np.sum(beams.horizontal[:, None] >= tops[:, None, :], axis=2)
    horizontal = (layer[:, :, None] == np.arange(3)) * chords(Beams(np.empty(0), beams.horizontal))[:, None]
    return np.concatenate([vertical, horizontal], axis=1)


def path_lengths(labels: NDArray[np.int32], fractions: Floats) -> Floats:
    """Path lengths (n, 6, 3) of the beams through water, oil and gas, each row in its own configuration."""
    paths = np.empty((len(labels), len(chords()), 3))
    for label, configuration in enumerate((homogeneous, annular, stratified)):
        rows = labels == label
        paths[rows] = configuration(fractions[rows])
    return paths


def transmission(paths: Floats) -> Floats:
    """Expected share (n, 6, 2) of the photons of each energy that cross the pipe."""
    absorbed = paths[:, :, :1] * ATTENUATION[:, WATER]
    for phase in (OIL, GAS):
        absorbed += paths[:, :, phase, None] * ATTENUATION[:, phase]
    return portable.exp(-absorbed)


def readings(transmitted: Floats) -> Floats:
    """The 12 readings of a row: for each beam the paths through water and oil that its two counts imply."""
    gas = ATTENUATION[:, GAS]
    first, second = np.moveaxis(-portable.log(transmitted) - chords()[:, None] * gas, 2, 0)
    (a, b), (c, d) = ATTENUATION[:, :GAS] - gas[:, None]
    determinant = a * d - b * c
    paths = ((d * first - b * second) / determinant, (a * second - c * first) / determinant)
    return np.stack(paths, axis=2).reshape(len(transmitted), -1)


def oilflow_block(seed: int, block: int, photons: float = PHOTONS) -> dict[str, NDArray]:
    """One block of oil-flow rows: `Y` (BLOCK, 12) and `labels` (BLOCK,).

    The configurations are equally likely. The area fractions of the phases are Dirichlet(2, 2, 2): all phases
    present, none preferred.
    """
    rng = generator(seed, block)
    labels = rng.integers(len(CONFIGURATIONS), size=BLOCK, dtype=np.int32)
    amounts = portable.gamma2(rng, (BLOCK, 3))
    fractions = amounts / (amounts[:, :1] + amounts[:, 1:2] + amounts[:, 2:])
    counts = portable.poisson(rng, photons * transmission(path_lengths(labels, fractions)))
    received = np.maximum(counts, 0.5)  # a beam that lost every photon must have a logarithm
    return {"Y": readings(received / photons), "labels": labels}


def relevance(inputs: int) -> Floats:
    """The ARD weights α_q = 1/q² of the random function: the first input matters most."""
    return 1.0 / np.square(np.arange(1.0, inputs + 1.0))


def random_function(seed: int, inputs: int, outputs: int, features: int = 128) -> RandomFunction:
    """Draw the function that all blocks of a seed share."""
    rng = generator(seed, 0)
    frequencies = portable.normal(rng, (inputs, features)) * (np.sqrt(relevance(inputs)) / (2.0 * np.pi))[:, None]
    phases = rng.random(features)
    weights = portable.normal(rng, (features, outputs)) * np.sqrt(2.0 / features)
    return RandomFunction(frequencies, phases, weights)


def values(function: RandomFunction, X: Floats) -> Floats:
    """The noise-free outputs (n, d) at the inputs X (n, q)."""
    columns = np.ascontiguousarray(X.T)
    total = np.zeros((function.weights.shape[1], len(X)))
    for frequencies, phase, weights in zip(function.frequencies.T, function.phases, function.weights, strict=True):
        turns = np.full(len(X), phase)
        for frequency, column in zip(frequencies, columns, strict=True):
            turns += frequency * column
        total += weights[:, None] * portable.cos(turns)
    return np.ascontiguousarray(total.T)


def regression_block(function: RandomFunction, seed: int, block: int, noise: float) -> dict[str, NDArray]:
    """One block of regression rows: standard normal `X` (BLOCK, q), and `Y` (BLOCK, d) with normal noise."""
    rng = generator(seed, 1, block)
    X = portable.normal(rng, (BLOCK, len(function.frequencies)))
    Y = values(function, X)
    return {"X": X, "Y": Y + noise * portable.normal(rng, Y.shape)}
