"""New rows in the latent space of a GPLVM: their q(x*) is the best there is, row by row, whatever is missing."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import logsumexp

from tests.support.calling import answer, command, predict, read, widened, write

TRAIN, NEW, M = 200, 60, 12
Row = dict[str, np.ndarray]


class Oil(NamedTuple):
    """A GPLVM of oil flow: its file and what that holds, the rows it learnt from, and others, with entries missing."""

    model: Path
    file: Row
    train: np.ndarray
    new: np.ndarray
    masked: np.ndarray

    @property
    def d(self) -> int:
        return self.new.shape[1]

    def standardized(self, Y: np.ndarray) -> np.ndarray:
        """Return outputs in the units of the bound."""
        return (Y - self.file["standardize/y_mean"]) / self.file["standardize/y_scale"]

    def moments(self, **inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the function, standardised, both (n*, d)."""
        found = predict(self.model, **inputs)
        variance = widened(found["variance"], self.d) / self.file["standardize/y_scale"] ** 2
        return self.standardized(found["mean"]), variance

    def bound(self, Y: np.ndarray, mu: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Return the bound of each row by its definition, ⟨log p(y | f)⟩ over what is observed, less KL(q‖p)."""
        beta = self.file["beta"]
        mean, variance = self.moments(X=mu, X_variance=S)
        fits = 0.5 * np.log(beta / (2 * np.pi)) - beta / 2 * ((self.standardized(Y) - mean) ** 2 + variance)
        return np.nansum(fits, axis=1) - 0.5 * (S + mu**2 - 1 - np.log(S)).sum(axis=1)


@pytest.fixture(scope="module", params=[2, 3], ids="{} dimensions".format)
def oil(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oil:
    folder = tmp_path_factory.mktemp("oil")
    command("synth", "oilflow", "--rows", TRAIN + NEW, "-o", folder / "all.h5")
    Y = read(folder / "all.h5")["Y"]
    data = write(folder / "train.h5", Y=Y[:TRAIN])
    learn = ["--model", "gplvm", "--latent", request.param, "--inducing", M, "--max-iter", 150]
    command("fit", data, "-o", folder / "model.h5", *learn)
    data.unlink()
    new = Y[TRAIN:]
    masked = np.where(np.random.default_rng(21).random(new.shape) < 0.2, np.nan, new)
    masked[7] = np.nan
    return Oil(folder / "model.h5", read(folder / "model.h5"), Y[:TRAIN], new, masked)


@pytest.fixture(scope="module")
def embedded(oil: Oil) -> Row:
    """q(x*) and the bound of the new rows with missing entries."""
    return answer("embed", oil.model, Y=oil.masked)


@pytest.fixture(scope="module")
def reconstructed(oil: Oil) -> Row:
    return answer("reconstruct", oil.model, Y=oil.masked)


# what is written


def test_all_rows_are_told_of(oil: Oil, embedded: Row, reconstructed: Row) -> None:
    q = len(oil.file["kernel/alpha"])
    shapes = {name: values.shape for name, values in embedded.items()}
    assert shapes == {"latent/mu": (NEW, q), "latent/S": (NEW, q), "bound": (NEW,)}
    assert {name: values.shape for name, values in reconstructed.items()} == dict.fromkeys(
        ("mean", "variance", "y_variance"), (NEW, oil.d)
    )
    assert all(np.isfinite(values).all() for values in (*embedded.values(), *reconstructed.values()))
    assert (embedded["latent/S"] > 0).all()


def test_a_row_without_any_entry_is_the_prior(oil: Oil, embedded: Row, reconstructed: Row) -> None:
    """Exactly: there is nothing to compute."""
    assert np.isnan(oil.masked[7]).all()
    assert (embedded["latent/mu"][7] == 0).all()
    assert (embedded["latent/S"][7] == 1).all()
    assert embedded["bound"][7] == 0
    q = embedded["latent/mu"].shape[1]
    prior = predict(oil.model, X=np.zeros((1, q)), X_variance=np.ones((1, q)))
    assert np.allclose(reconstructed["mean"][7], prior["mean"][0], rtol=1e-12)


def test_reconstructions_are_predictions_at_the_embedding(oil: Oil, embedded: Row, reconstructed: Row) -> None:
    """To rounding: they are the same formula."""
    found = predict(oil.model, X=embedded["latent/mu"], X_variance=embedded["latent/S"])
    for name in ("mean", "variance", "y_variance"):
        assert np.allclose(reconstructed[name], widened(found[name], oil.d), rtol=1e-12, atol=0)


def test_rows_know_nothing_of_each_other(oil: Oil, embedded: Row, reconstructed: Row) -> None:
    """Bit for bit: in any company and any order a row gives the same numbers."""
    order = np.random.default_rng(22).permutation(NEW)
    strangers = np.where(np.arange(NEW)[:, None] % 3 == 0, oil.masked, np.nan)
    strangers[1::3] = 100 * oil.new[1::3]  # rows that no model explains
    companies = {
        "alone": (oil.masked[11:12], [11], [0]),
        "some": (oil.masked[3:20:4], range(3, 20, 4), range(5)),
        "in another order": (oil.masked[order], order, range(NEW)),
        "many more": (np.tile(oil.masked, (4, 1)), range(NEW), range(3 * NEW, 4 * NEW)),
        "among strangers": (strangers, range(0, NEW, 3), range(0, NEW, 3)),
    }
    for name, wanted in (("embed", embedded), ("reconstruct", reconstructed)):
        for company, (Y, before, now) in companies.items():
            found = answer(name, oil.model, Y=Y)
            pairs = [(key, found[key][list(now)], values[list(before)]) for key, values in wanted.items()]
            different = [key for key, one, other in pairs if one.tobytes() != other.tobytes()]
            assert different == [], (name, company)


# the bound


def test_the_bound_is_what_it_is_defined_as(oil: Oil, embedded: Row) -> None:
    """To 1e-7 nats: β times the moments of the function, of size 1, that are good to 1e-9 at the default jitter."""
    wanted = oil.bound(oil.masked, embedded["latent/mu"], embedded["latent/S"])
    assert np.abs(embedded["bound"] - wanted).max() < 1e-7


def test_no_row_has_a_better_place_nearby(oil: Oil, embedded: Row) -> None:
    """To 1e-5 nats, where a twentieth of a standard deviation off a maximum costs some 1e-3 in each dimension."""
    times, rng = 20, np.random.default_rng(23)
    Y, mu, S = [np.tile(rows, (times, 1)) for rows in (oil.masked, embedded["latent/mu"], embedded["latent/S"])]
    mu += 0.05 * np.sqrt(S) * rng.normal(size=mu.shape)
    S *= np.exp(0.05 * rng.normal(size=S.shape))
    moved = oil.bound(Y, mu, S).reshape(times, NEW)
    assert (np.max(moved, axis=0) - embedded["bound"]).max() < 1e-5
    assert np.median(embedded["bound"] - moved) > 1e-4  # the steps are large enough to show it


@pytest.mark.parametrize("oil", [2], indirect=True, ids="{} dimensions".format)
def test_the_bound_stays_below_the_evidence(oil: Oil, embedded: Row) -> None:
    """⟨log⟩ ≤ log⟨⟩: below log ∫ p(x) Π N(y | mean(x), variance(x) + 1/β) dx. The lattice that it is summed over has
    steps finer than the narrowest q(x*), where such sums of Gaussians lack far less than 1e-3.

    That is all there is to say when entries go missing: one more may raise the evidence, and the bound, or lower it."""
    q = embedded["latent/mu"].shape[1]
    line = np.linspace(-6, 6, 361)
    step = line[1] - line[0]
    assert step < np.sqrt(embedded["latent/S"].min())
    lattice = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, q)
    prior = -0.5 * (lattice**2).sum(1) - np.log(2 * np.pi) + 2 * np.log(step)
    assert logsumexp(prior) == pytest.approx(0, abs=1e-6)
    mean, variance = oil.moments(X=lattice)
    total = variance + 1 / oil.file["beta"]
    constant = -0.5 * np.log(2 * np.pi * total)
    Y = oil.standardized(oil.masked)
    evidence = np.array(
        [logsumexp(prior + (constant - 0.5 * (row - mean) ** 2 / total)[:, ~np.isnan(row)].sum(1)) for row in Y]
    )
    assert (embedded["bound"] < evidence + 1e-3).all()
    assert np.median(evidence - embedded["bound"]) < 2.0  # a bound of no use would be below as well


def test_an_entry_adds_no_more_than_its_greatest_density(oil: Oil, embedded: Row) -> None:
    """Whatever q(x*) is: KL ≥ 0, and a Gaussian's density is at most √(β / 2π)."""
    seen = (~np.isnan(oil.masked)).sum(1)
    assert (embedded["bound"] <= seen * 0.5 * np.log(oil.file["beta"] / (2 * np.pi))).all()


def test_training_rows_find_places_as_good_as_their_own(oil: Oil) -> None:
    """Learning moved them up the same bound, and had not quite arrived after 150 iterations; 1e-2 nats is what a row
    pays for being a tenth of a standard deviation off. The bound has several maxima: a few may have found another."""
    file = oil.file
    found = answer("embed", oil.model, Y=oil.train)
    own = oil.bound(oil.train, file["latent/mu"], file["latent/S"])
    assert np.mean(found["bound"] > own - 1e-2) > 0.95
    assert found["bound"].mean() > own.mean() - 1e-2


# reconstruction


def rmse(oil: Oil, Y: np.ndarray, wanted: np.ndarray, where: np.ndarray) -> float:
    """Return the root mean square of standardised errors over some entries."""
    return float(np.sqrt(np.mean((oil.standardized(Y) - oil.standardized(wanted))[where] ** 2)))


def test_training_rows_are_reconstructed_as_well_as_they_were_learnt(oil: Oil) -> None:
    """Within 5 %, since a few rows may have found another place."""
    file = oil.file
    found = answer("reconstruct", oil.model, Y=oil.train)
    own = predict(oil.model, X=file["latent/mu"], X_variance=file["latent/S"])
    everywhere = np.ones(oil.train.shape, bool)
    learnt = rmse(oil, own["mean"], oil.train, everywhere)
    assert rmse(oil, found["mean"], oil.train, everywhere) < 1.05 * learnt
    assert learnt < 0.4  # of columns with deviation 1: something was learnt


def test_missing_entries_are_told_clearly_better_than_by_their_mean(oil: Oil, reconstructed: Row) -> None:
    """By a third of the error at least; oil flow has two dimensions that matter, and these rows were never learnt."""
    missing = np.isnan(oil.masked)
    missing[7] = False  # nothing is known of this one
    means = np.broadcast_to(oil.train.mean(0), oil.new.shape)
    by_mean = rmse(oil, means, oil.new, missing)
    assert rmse(oil, reconstructed["mean"], oil.new, missing) < 2 / 3 * by_mean


def test_entries_that_were_seen_are_reproduced(oil: Oil, reconstructed: Row) -> None:
    """Within four standard deviations, which a Gaussian leaves once in 16000: all entries of nine rows in ten."""
    errors = np.abs(reconstructed["mean"] - oil.masked) / np.sqrt(reconstructed["y_variance"])
    within = np.nan_to_num(errors, nan=0.0).max(axis=1) < 4
    assert within.mean() >= 0.9


def test_outputs_are_more_uncertain_than_the_function_by_the_noise(oil: Oil, reconstructed: Row) -> None:
    file = oil.file
    noise = file["standardize/y_scale"] ** 2 / file["beta"]
    assert np.allclose(reconstructed["y_variance"], reconstructed["variance"] + noise, rtol=1e-14, atol=0)
