"""Synthetic data: the physics of oil flow, the random function, and rows that depend on the seed alone."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import Parser
from mpigp.commands import synth as command
from mpigp.data import synth
from mpigp.errors import InputError

REAL = Path(__file__).parents[3] / "shared" / "data" / "oilflow.h5"
CONFIGURATIONS = [synth.homogeneous, synth.annular, synth.stratified]


def run(*words: object) -> dict:
    parser = Parser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in words]), None)


def read(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items()}


@pytest.fixture
def fractions() -> np.ndarray:
    return np.random.default_rng(1).dirichlet([1.0, 1.0, 1.0], size=200)


# the pipe


def test_layer_height_encloses_the_area() -> None:
    fraction = np.concatenate([[0.0, 1e-12, 1e-6, 1.0 - 1e-6, 1.0], np.linspace(0.0, 1.0, 1001)])
    height = synth.layer_height(fraction)
    angle = np.arccos(-height)
    np.testing.assert_allclose((angle - np.sin(angle) * np.cos(angle)) / np.pi, fraction, atol=1e-15)
    assert height[0] == -1.0 and height[4] == 1.0
    assert np.all(np.diff(height[5:]) > 0.0)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_path_lengths_add_up_to_the_chord(configuration, fractions: np.ndarray) -> None:
    paths = configuration(fractions)
    assert paths.shape == (200, 6, 3)
    assert np.all(paths >= 0.0)
    np.testing.assert_allclose(paths.sum(axis=2), np.tile(synth.chords(), (200, 1)), atol=1e-14)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_many_parallel_beams_measure_the_area_fractions(configuration, fractions: np.ndarray) -> None:
    """Path lengths integrated over the beam's position are areas, from either side."""
    count = 4000
    offsets = (np.arange(count) + 0.5) * 2.0 / count - 1.0
    paths = configuration(fractions[:20], synth.Beams(offsets, offsets))
    for side in (paths[:, :count], paths[:, count:]):
        area = side.sum(axis=1) * 2.0 / count
        # midpoint rule: an edge of height 2 may be off by half a step
        np.testing.assert_allclose(area / np.pi, fractions[:20], atol=2.0 / count)


def test_phases_lie_where_gravity_and_the_wall_put_them() -> None:
    thirds = np.full((1, 3), 1.0 / 3.0)
    bottom, middle, top = synth.stratified(thirds)[0, 3:]
    assert bottom[synth.WATER] == bottom.sum() and middle[synth.OIL] == middle.sum() and top[synth.GAS] == top.sum()
    edge, _, centre = synth.annular(thirds)[0, :3]
    assert edge[synth.WATER] == edge.sum() and centre[synth.GAS] > 0.0


def test_readings_without_noise_are_path_lengths(fractions: np.ndarray) -> None:
    labels = np.arange(200, dtype=np.int32) % 3
    paths = synth.path_lengths(labels, fractions)
    np.testing.assert_array_equal(paths[labels == 2], synth.stratified(fractions[labels == 2]))
    noiseless = synth.readings(synth.transmission(paths)).reshape(200, 6, 2)
    # the two equations of a beam are nearly parallel: condition number about 150
    np.testing.assert_allclose(noiseless, paths[:, :, :2], atol=1e-12)
    mixed = labels == 0
    expected = fractions[mixed, None, :2] * synth.chords()[:, None]
    np.testing.assert_allclose(noiseless[mixed], expected, atol=1e-12)


def test_noise_shrinks_with_the_square_root_of_the_photons() -> None:
    exact = synth.oilflow_block(3, 0, photons=1e18)["Y"]
    few, many = (synth.oilflow_block(3, 0, photons=n)["Y"] - exact for n in (1e6, 1e8))
    # 8192 rows: the standard deviation of a standard deviation is 0.8 %
    np.testing.assert_allclose(few.std(axis=0) / many.std(axis=0), 10.0, rtol=0.05)
    assert np.corrcoef(few[:, 0], few[:, 1])[0, 1] < -0.99


def test_a_single_photon_gives_finite_readings() -> None:
    assert np.all(np.isfinite(synth.oilflow_block(0, 0, photons=1.0)["Y"]))


@pytest.mark.skipif(not REAL.exists(), reason="the published data are not beside the repository")
def test_resembles_the_published_data() -> None:
    real = read(REAL)
    simulated = synth.oilflow_block(0, 0)
    for label in range(3):
        a, b = (data["Y"][data["labels"] == label] for data in (real, simulated))
        # about 340 published rows a class: a mean is known to 0.05, a standard deviation to 0.04
        np.testing.assert_allclose(b.mean(axis=0), a.mean(axis=0), atol=0.15)
        np.testing.assert_allclose(b.std(axis=0), a.std(axis=0), atol=0.12)
    assert abs(simulated["Y"].min() - real["Y"].min()) < 0.15
    assert abs(simulated["Y"].max() - real["Y"].max()) < 0.15


# the random function


def test_function_has_the_covariance_of_the_rbf_kernel() -> None:
    function = synth.random_function(5, inputs=3, outputs=4000, features=4000)
    X = np.random.default_rng(0).standard_normal((10, 3))
    f = synth.values(function, X)
    squared = (X[:, None] - X[None]) ** 2 @ synth.relevance(3)
    # two averages over 4000 draws: the standard deviation of each is at most √(2/4000) = 0.022
    np.testing.assert_allclose(f @ f.T / 4000, np.exp(-0.5 * squared), atol=0.12)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_regression_noise(noise: float) -> None:
    function = synth.random_function(1, inputs=4, outputs=3)
    block = synth.regression_block(function, 1, 0, noise)
    residual = block["Y"] - synth.values(function, block["X"])
    np.testing.assert_allclose(residual.std(axis=0), noise, rtol=0.05)


# files


@pytest.mark.parametrize("kind", ["oilflow", "regression"])
def test_first_rows_do_not_depend_on_their_number(kind: str, tmp_path: Path) -> None:
    lengths = (100, synth.BLOCK, synth.BLOCK + 1, 2 * synth.BLOCK + 5)
    files = []
    for rows in lengths:
        run(kind, "--rows", rows, "-o", tmp_path / f"{rows}.h5", "--seed", 3)
        files.append(read(tmp_path / f"{rows}.h5"))
    for shorter, longer in pairwise(files):
        for name, values in shorter.items():
            np.testing.assert_array_equal(values, longer[name][: len(values)])
    Y = files[-1]["Y"]
    assert len(Y) == lengths[-1]
    assert not np.any(Y[:5] == Y[synth.BLOCK : synth.BLOCK + 5])


@pytest.mark.parametrize("kind", ["oilflow", "regression"])
def test_the_seed_decides_the_bits(kind: str, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(kind, "--rows", 50, "-o", tmp_path / name, "--seed", seed)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    a, c = read(tmp_path / "a"), read(tmp_path / "c")
    assert not np.any(a["Y"] == c["Y"])


def test_oilflow_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "oil.h5"
    figures = run("oilflow", "--rows", 1000, "-o", path, "--dtype", "float32")
    assert capsys.readouterr().out == f"{path}: 1000 rows of Y (12), labels\n"
    assert figures["rows"] == 1000 and figures["datasets"] == {"Y": (1000, 12), "labels": (1000,)}
    with h5py.File(path) as file:
        assert file["Y"].dtype == np.float32 and file["labels"].dtype == np.int32
        assert file["Y"].chunks is None
        assert len(file["Y"].attrs["columns"]) == 12
        assert set(file["labels"][:]) == {0, 1, 2}


def test_regression_file(tmp_path: Path) -> None:
    path = tmp_path / "reg.h5"
    run("regression", "--rows", 10, "-o", path, "--inputs", 5, "--outputs", 2)
    shapes = {name: values.shape for name, values in read(path).items()}
    assert shapes == {"X": (10, 5), "Y": (10, 2)}


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for blocks in (2, 12):
        tracemalloc.start()
        run("oilflow", "--rows", blocks * synth.BLOCK, "-o", tmp_path / "oil.h5")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["oilflow", "--rows", 0], "--rows 0"),
        (["oilflow", "--rows", -5], "--rows -5"),
        (["oilflow", "--rows", 10**17], "free"),
        (["oilflow", "--rows", 5, "--seed", -1], "--seed -1"),
        (["oilflow", "--rows", 5, "--photons", 0], "--photons 0"),
        (["oilflow", "--rows", 5, "--photons", "nan"], "--photons nan"),
        (["oilflow", "--rows", 5, "--inputs", 3], "--inputs"),
        (["regression", "--rows", 5, "--photons", 3], "--photons"),
        (["regression", "--rows", 5, "--inputs", 0], "--inputs 0"),
        (["regression", "--rows", 5, "--outputs", -1], "--outputs -1"),
        (["regression", "--rows", 5, "--noise", -1], "--noise -1"),
        (["regression", "--rows", 5, "--noise", "inf"], "--noise inf"),
    ],
)
def test_bad_options_are_named_and_nothing_is_written(words: list, named: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(*words, "-o", tmp_path / "out.h5")
    assert named in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "oil.h5"
    path.write_bytes(b"precious")
    make = synth.oilflow_block

    def fail_later(seed: int, block: int, photons: float) -> dict:
        if block == 1:
            raise KeyboardInterrupt
        return make(seed, block, photons)

    monkeypatch.setattr(synth, "oilflow_block", fail_later)
    with pytest.raises(KeyboardInterrupt):
        run("oilflow", "--rows", 2 * synth.BLOCK, "-o", path)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]
