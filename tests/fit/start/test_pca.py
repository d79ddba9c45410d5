"""Latent means to start from: principal components as an SVD gives them, and random numbers that know no ranks."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.chunks import Share, chunk_count, share
from mpigp.errors import InputError
from mpigp.fit.start.pca import COVARIANCE_COLUMNS, pca, random_latent
from mpigp.mpi.distributed_rows import DistributedRows

SELF = MPI.COMM_SELF


def whole(values: np.ndarray) -> DistributedRows:
    """Return rows (n, columns) that are all on this rank."""
    return DistributedRows(SELF, len(values), values)


def outputs(n: int, d: int, decay: float = 0.7) -> np.ndarray:
    """Return rows whose principal components have deviations 1, decay, decay², ..., away from the origin."""
    rng = np.random.default_rng([n, d])
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (rng.normal(size=(n, d)) * decay ** np.arange(d)) @ rotation + rng.normal(size=d)


def components(Y: np.ndarray, q: int) -> np.ndarray:
    """Return the first q principal components of unit variance by an SVD, their signs by the largest entries."""
    U, _, Vt = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    signs = np.sign(Vt[np.arange(q), np.abs(Vt[:q]).argmax(axis=1)])
    return U[:, :q] * signs * len(Y) ** 0.5


@pytest.mark.parametrize(("n", "d", "q"), [(2, 1, 1), (100, 1, 1), (65, 4, 4), (1009, 12, 10), (70001, 3, 2)])
def test_pca_agrees_with_svd(n: int, d: int, q: int) -> None:
    Y = outputs(n, d)
    # The covariance squares the condition number, at most 1/0.7¹¹ here.
    np.testing.assert_allclose(pca(whole(Y), q), components(Y, q), atol=1e-9)


@pytest.mark.parametrize("n", [300, 1500])
def test_the_sketch_for_many_columns_agrees_with_svd(n: int) -> None:
    Y = outputs(n, COVARIANCE_COLUMNS + 50)
    np.testing.assert_allclose(pca(whole(Y), 5), components(Y, 5), atol=1e-9)


def test_the_sketch_is_close_where_the_spectrum_falls_slowly() -> None:
    n, d, q = 2000, COVARIANCE_COLUMNS + 1, 3
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(n, d)) + rng.normal(size=(n, q)) * [9.0, 6.0, 4.0] @ np.eye(q, d)
    np.testing.assert_allclose(pca(whole(Y), q), components(Y, q), atol=1e-3)  # a start: three digits will do


def test_columns_have_mean_zero_and_unit_variance() -> None:
    mu = pca(whole(outputs(5000, 6)), 6)
    np.testing.assert_allclose(mu.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(mu.T @ mu / 5000, np.eye(6), atol=1e-9)


def test_signs_do_not_follow_rounding_where_entries_agree() -> None:
    """Of two standardised columns the directions are (1, ±1)/√2, whose entries differ by rounding at most."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        Y = rng.normal(size=(200, 2))
        Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
        second = pca(whole(Y), 2)[:, 0 if np.corrcoef(Y.T)[0, 1] < 0 else 1]
        assert np.vdot(second, Y[:, 0]) > 0


def test_components_survive_far_from_the_origin() -> None:
    Y = outputs(500, 4) + 1e9
    np.testing.assert_allclose(pca(whole(Y), 2), components(Y, 2), atol=1e-6)  # NumPy's own mean is good to 1e-7


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_size_of_the_numbers_does_not_matter(size: float) -> None:
    Y = outputs(500, 4)
    np.testing.assert_allclose(pca(whole(size * Y), 2), pca(whole(Y), 2), atol=1e-10)


@pytest.mark.parametrize("d", [5, COVARIANCE_COLUMNS + 10])
def test_directions_without_variance_get_small_random_numbers(d: int) -> None:
    rng = np.random.default_rng(3)
    Y = rng.normal(size=(1000, 2)) @ rng.normal(size=(2, d))
    mu = pca(whole(Y), 4)
    np.testing.assert_allclose(mu[:, :2], components(Y, 2), atol=1e-9)
    assert (mu[:, 2:] == 0.1 * random_latent(1000, Share(0, 1000), 4, 0)[:, 2:]).all()


@pytest.mark.parametrize("Y", [np.zeros((1, 2)), np.full((300, 2), 0.1), np.zeros((300, COVARIANCE_COLUMNS + 1))])
def test_data_that_do_not_vary_give_random_numbers(Y: np.ndarray) -> None:
    assert (pca(whole(Y), 2) == 0.1 * random_latent(len(Y), Share(0, len(Y)), 2, 0)).all()


def test_more_latent_dimensions_than_columns_are_refused() -> None:
    with pytest.raises(InputError, match=r"latent: is 4, but the data have 3 columns.*init to random, or latent to 3"):
        pca(whole(outputs(100, 3)), 4)


@pytest.mark.parametrize("n", [1, 130, 1009, 10007])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_random_latent_does_not_depend_on_ranks(n: int, size: int) -> None:
    parts = [random_latent(n, share(n, rank, size), 3, seed=7) for rank in range(size)]
    assert np.concatenate(parts).tobytes() == random_latent(n, Share(0, n), 3, seed=7).tobytes()


def test_random_latent_may_start_and_stop_within_chunks() -> None:
    assert (random_latent(1000, Share(70, 205), 2, 1) == random_latent(1000, Share(0, 1000), 2, 1)[70:205]).all()


def test_random_latent_is_standard_normal_and_follows_its_seed() -> None:
    n = 20000
    assert chunk_count(n) > 1
    mu = random_latent(n, Share(0, n), 2, 0)
    np.testing.assert_allclose(mu.mean(axis=0), 0.0, atol=5 / n**0.5)
    np.testing.assert_allclose(np.cov(mu.T), np.eye(2), atol=5 * (2 / n) ** 0.5)
    assert len(np.unique(mu)) == mu.size  # no chunk repeats another
    assert not (mu == random_latent(n, Share(0, n), 2, 1)).any()
