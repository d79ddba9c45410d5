"""What an evaluation costs: messages that do not depend on n or the ranks, and memory for the rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import MODELS as ENGINE
from mpigp.gp.statistics import model_of
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from mpigp.numerics.reproducible_sum import DIGITS
from tests.support import matern
from tests.support.inputs import MODELS, write_inputs
from tests.support.launching import run, several


def message_lengths(model: str, m: int, q: int, d: int) -> list[int]:
    """Return the numbers, of 8 bytes each, in the four messages of an evaluation, where K_mm is well conditioned."""
    pairs = m * (m + 1) // 2
    divergence = 2 if model == "gplvm" else 0  # KL in two words
    weights = pairs if model == "gplvm" else m * m  # of ψ2's pairs; of A in regression, which is not symmetric
    return [
        m * q + q + 3,  # Z, alpha; variance, beta, jitter
        pairs + m * d + divergence + 1,  # Ψ2, Σψ1Y, KL; sums that did not fit
        weights + 2 * m * d + 2,  # the weights, the fit; a limit, F
        2 * (m * q + q) + 1,  # gradients of Z and alpha in two words; sums that did not fit
    ]


class Counting:
    """The communicator of the rank with all rows, which notes every collective call that carries data."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def Bcast(self, buffer: np.ndarray, root: int) -> None:
        self.calls.append(("Bcast", buffer.nbytes))

    def Allreduce(self, sent: Any, buffer: np.ndarray, op: MPI.Op) -> None:
        assert sent is MPI.IN_PLACE
        self.calls.append(("Allreduce", buffer.nbytes))

    def Barrier(self) -> None:
        """Carries nothing."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [1, 700])
def test_an_evaluation_is_four_messages_of_known_length(model: str, n: int) -> None:
    """Any other communication would be an attribute that this communicator lacks."""
    m, q, d = 6, 3, 2
    rng = np.random.default_rng(0)
    mu, Y = rng.normal(size=(n, q)), rng.normal(size=(n, d))
    S = rng.uniform(0.1, 1.0, size=(n, q)) if model == "gplvm" else None
    comm = Counting()
    evaluator = Evaluator(comm, ENGINE[model], Rows(comm, n, mu, S, Y), m, q)
    comm.calls.clear()
    comm.size = 2  # one rank sends nothing
    evaluator(Globals(rng.normal(size=(m, q)), 1.0, np.ones(q), 10.0), 1e-8)
    lengths = message_lengths(model, m, q, d)
    names = ["Bcast", "Allreduce", "Bcast", "Allreduce"]
    assert comm.calls == [(name, 8 * length) for name, length in zip(names, lengths, strict=True)]
    assert (evaluator.phases.messages, evaluator.phases.bytes) == (4, 8 * sum(lengths))


def test_a_kernel_in_numpy_sends_three_words_and_a_byte_for_each_sum_of_the_second_round() -> None:
    """Superaccumulators had 70 words: with whitened gradients, which have the most sums, that was ten times as much."""
    n, m, q, d = 200, 20, 3, 200
    rng = np.random.default_rng(0)
    mu, Y = rng.normal(size=(n, q)), rng.normal(size=(n, d))
    comm = Counting()
    evaluator = Evaluator(comm, model_of("regression", matern.NAME), Rows(comm, n, mu, None, Y), m, q)
    comm.calls.clear()
    comm.size = 2
    evaluator(Globals(rng.normal(size=(m, q)), 1.0, np.ones(q), 1e12), 1e-8)
    sums, (*first, _) = m * q + q + m * d, message_lengths("regression", m, q, d)
    names = ["Bcast", "Allreduce", "Bcast", "Allreduce", "Allreduce"]
    lengths = [*(8 * length for length in first), sums, 8 * (3 * sums + 1)]
    assert comm.calls == list(zip(names, lengths, strict=True))
    assert (evaluator.phases.messages, evaluator.phases.bytes) == (5, sum(lengths))
    assert 10 * sum(lengths) <= 8 * (sum(first) + DIGITS * sums + 1)


@pytest.mark.parametrize("ranks", [1, 3])
def test_messages_depend_on_neither_rows_nor_ranks(ranks: int, tmp_path: Path) -> None:
    m, q, d = 5, 2, 3
    wanted, commands = [], []
    for model in MODELS:
        for n in (50, 5000):
            inputs = write_inputs(tmp_path / f"{model}{n}", model, n, m, q, d)
            commands.append(["evaluate", *inputs.arguments, "--json", "--repeat", 2])
            wanted.append((4, 8 * sum(message_lengths(model, m, q, d))))
    outcomes = several(tmp_path / "told", ranks, commands)
    figures = [each[0].figures for each in outcomes]
    assert [(each["messages"], each["bytes"]) for each in figures] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_nothing_of_size_n_times_m_exists(model: str, ranks: int, tmp_path: Path) -> None:
    """At most 1.3 × the rows of a rank + 250 MB; an array n × m would be 640 MB, 320 MB on each of two ranks."""
    n, m, q, d = 2_000_000, 40, 1, 1
    inputs = write_inputs(tmp_path, model, n, m, q, d)
    outcome = run(ranks, "evaluate", *inputs.arguments, "--json", "-o", tmp_path / "gradient.h5")
    assert outcome.code == 0, outcome.stderr
    columns = d + (4 * q if model == "gplvm" else q)  # Y; mu, S and their gradients, or X
    assert outcome.figures["peak_memory"] < 1.3 * 8 * columns * n / ranks + 250e6
