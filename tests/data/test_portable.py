"""Functions and random numbers that every CPU rounds alike: their accuracy and distributions; and `synth` by them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import mpmath
import numpy as np
import pytest
from scipy import stats

from mpigp.data import portable, synth

COUNT = 200_000
UNLIKELY = 1e-4  # that a test of a distribution fails by chance; the seeds are fixed, so it does not


def exactly(function: Callable, x: np.ndarray) -> np.ndarray:
    with mpmath.workdps(40):
        return np.array([float(function(mpmath.mpf(value))) for value in x.tolist()])


def spaced(low: float, high: float) -> np.ndarray:
    """Numbers of every order of magnitude between 10^low and 10^high, of both signs."""
    rng = np.random.default_rng(0)
    return 10.0 ** rng.uniform(low, high, 1000) * rng.choice([-1.0, 1.0], 1000)


@pytest.mark.parametrize(
    ("function", "exact", "x"),
    [
        (portable.exp, mpmath.exp, np.concatenate([spaced(-10, 1), np.linspace(-700, 700, 301)])),
        (portable.log, mpmath.log, np.abs(np.concatenate([spaced(-300, 300), 1 + spaced(-12, -0.2)]))),
        (portable.sin, lambda t: mpmath.sin(2 * mpmath.pi * t), spaced(-10, 2)),
    ],
)
def test_functions_err_in_the_last_places(function: Callable, exact: Callable, x: np.ndarray) -> None:
    expected = exactly(exact, x)
    assert np.max(np.abs(function(x) - expected) / np.spacing(np.abs(expected))) <= 2.0


def test_cosine() -> None:
    t = np.concatenate([spaced(-10, 2), np.arange(-8, 9) / 4])
    expected = exactly(lambda t: mpmath.cos(2 * mpmath.pi * t), t)
    np.testing.assert_allclose(portable.cos(t), expected, rtol=0, atol=4.5e-16)  # two units in the last place of 1
    np.testing.assert_array_equal(portable.cos(np.arange(-8, 9) / 4), [1.0, 0.0, -1.0, 0.0] * 4 + [1.0])


def test_normal_and_gamma_numbers() -> None:
    rng = np.random.default_rng(1)
    assert portable.normal(rng, (3, 5)).shape == (3, 5)
    normal, gamma = portable.normal(rng, (COUNT,)), portable.gamma2(rng, (COUNT,))
    assert stats.kstest(normal, "norm").pvalue > UNLIKELY
    assert abs(stats.pearsonr(normal[::2], normal[1::2])[0]) < 5 / np.sqrt(COUNT / 2)
    assert stats.kstest(gamma, stats.gamma(2.0).cdf).pvalue > UNLIKELY


@pytest.mark.parametrize("mean", [0.02, 1.0, 9.9, 10.0, 15.0, 40.0, 1e4, 8e6, 1e18])
def test_poisson_numbers(mean: float) -> None:
    rng = np.random.default_rng(2)
    counts = portable.poisson(rng, np.full((COUNT // 2, 2), mean)).ravel()
    assert np.all(counts >= 0) and np.array_equal(counts, np.round(counts))
    # spread over its own probability, the distribution function of a count is uniform
    if mean < 1e10:
        level = stats.poisson.cdf(counts, mean) - rng.random(COUNT) * stats.poisson.pmf(counts, mean)
    else:
        level = stats.norm.cdf((counts - mean) / np.sqrt(mean))
    assert stats.kstest(level, "uniform").pvalue > UNLIKELY
    assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / COUNT)
    assert abs(counts.var() / mean - 1) < 4 * np.sqrt((2 + 1 / mean) / COUNT)


@pytest.mark.parametrize("mean", [10.0, 16.0, 30.0, 1e3])
def test_poisson_probabilities(mean: float) -> None:
    k = np.arange(0.0, 3 * mean)
    found = portable._log_poisson(k, np.full_like(k, mean))
    np.testing.assert_allclose(found, stats.poisson.logpmf(k, mean), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("words", [["oilflow"], ["oilflow", "--photons", "30"], ["regression", "--outputs", "2"]])
def test_synth_gives_the_same_bits_on_another_cpu(words: list[str], tmp_path: Path) -> None:
    """NumPy, OpenBLAS, the C library and our loops as on a CPU without the vector instructions that this one has."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    modest = {"NPY_DISABLE_CPU_FEATURES": " ".join(found), "OPENBLAS_CORETYPE": "Haswell",
              "MPIGP_INSTRUCTION_SET": "baseline",
              "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4"}  # fmt: skip
    hashes = []
    for place, variables in enumerate(({}, modest)):
        path = tmp_path / f"{place}.h5"
        rows = ["--rows", str(synth.BLOCK + 5), "-o", str(path)]
        subprocess.run([sys.executable, "-m", "mpigp", "synth", *words, *rows], env={**os.environ, **variables},
                       check=True, timeout=120)  # fmt: skip
        with h5py.File(path) as file:
            hashes.append({name: hashlib.sha256(values[()].tobytes()).hexdigest() for name, values in file.items()})
    assert hashes[0] == hashes[1]
