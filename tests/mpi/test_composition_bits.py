"""Composed kernels: the same bits on any number of ranks and threads, and the same numbers by any instruction set.

As a program, `test_composition_bits.py FOLDER THREADS` under mpiexec, it evaluates all cases and saves what they give.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from mpi4py import MPI

from mpigp import native
from mpigp.chunks import chunk_count, share
from mpigp.fit.start.inducing import greedy
from mpigp.gp.statistics import model_of
from mpigp.mpi.distributed_rows import DistributedRows
from tests.support.compositions import EVERYTHING, LATENT, REGRESSIONS, Composition, Q, evaluate, make
from tests.support.launching import ROOT, Outcome, mpiexec, start

N, M, D = 277, 7, 3  # a prime: nothing divides it; five chunks
JITTER = 1e-3
LIMIT = 120.0  # seconds, for a second's work: only a hang meets it


class Case(NamedTuple):
    """One evaluation."""

    model: str
    text: str
    bound: str
    holes: bool = False


CASES = [
    Case("regression", "matern32", "titsias"),
    Case("regression", "linear", "sphere"),
    Case("regression", "matern32[0:2] * periodic[2] + bias", "titsias"),
    Case("regression", "linear[0] * linear[2,1] + rbf", "rows"),
    Case("regression", EVERYTHING, "rows"),
    Case("gplvm", "rbf + linear", "titsias"),
    Case("gplvm", "rbf + linear", "sphere", holes=True),
    Case("gplvm", "rbf[0] + rbf[1] + linear + bias", "rows"),
    Case("gplvm", "rbf[1] * rbf[0] + linear[1]", "rows", holes=True),
]


def kernel_of(case: Case) -> Composition:
    q, terms = (Q, REGRESSIONS[case.text]) if case.model == "regression" else LATENT[case.text]
    return Composition(terms, q)


def results(comm: MPI.Comm, threads: int) -> dict[str, np.ndarray]:
    """Return, on rank 0, what each case gives: the bound and all gradients, and the rows of greedy placement."""
    found, mine = {}, slice(*share(N, comm.rank, comm.size))
    for number, case in enumerate(CASES):
        X, Y, parameters = make(kernel_of(case), N, M, D)
        S = np.random.default_rng(8).uniform(0.02, 0.5, size=X.shape)
        if case.holes:
            Y[np.random.default_rng(9).random(Y.shape) < 0.1] = np.nan
        model = model_of(case.model, case.text, case.bound)
        result = evaluate(model, X[mine], S[mine], Y[mine], parameters, JITTER, comm, N, threads).result
        assert len(set(comm.allgather(result.bound))) == 1
        ours = {"bound": np.array(result.bound), "jitter": np.array(result.jitter)}
        if comm.rank == 0:
            ours |= {name: np.asarray(each) for name, each in result.gradient._asdict().items()}
        for name, each in (("mu", result.by_mu), ("S", result.by_S)):
            if each is not None:
                ours[name] = np.concatenate(comm.allgather(each))
        if case.model == "regression":
            rows = DistributedRows(comm, N, X[mine])
            ours["greedy"] = greedy(rows, 3, model.backend, parameters.alpha)  # linear has rank three
        found |= {f"{number} {name}": each for name, each in ours.items()}
    return found


@pytest.fixture(scope="module", autouse=True)
def modules() -> Iterator[None]:
    """Let the program find the tests' helpers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


def loaded(outcome: Outcome, folder: Path) -> dict[str, np.ndarray]:
    """Return what a run has saved."""
    assert outcome.code == 0, outcome.stderr
    with np.load(folder / "found.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def alone(modules: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("alone")
    return loaded(mpiexec(1, __file__, folder, 1, timeout=LIMIT), folder)


def test_one_rank_finds_numbers(alone: dict[str, np.ndarray]) -> None:
    """Equal results would prove nothing if they were empty or NaN, or of one rank's rows."""
    assert chunk_count(N) == 5
    for number, case in enumerate(CASES):
        names = ["bound", "Z", "alpha", "beta", *(["mu", "S"] if case.model == "gplvm" else ["greedy"])]
        for name in names:
            values = alone[f"{number} {name}"]
            assert values.size and np.isfinite(values).all() and values.any(), (case, name)
        assert alone[f"{number} jitter"] == JITTER


@pytest.mark.parametrize(("ranks", "threads"), [(1, 2), (2, 1), (3, 1), (5, 1), (2, 2)])
def test_ranks_and_threads_change_no_bit(
    ranks: int, threads: int, alone: dict[str, np.ndarray], tmp_path: Path
) -> None:
    found = loaded(mpiexec(ranks, __file__, tmp_path, threads, threads=threads, timeout=LIMIT), tmp_path)
    assert found.keys() == alone.keys()
    different = [
        (CASES[int(name.split()[0])], name)
        for name, values in alone.items()
        if (values.shape, values.tobytes()) != (found[name].shape, found[name].tobytes())
    ]
    assert not different


@pytest.mark.parametrize("instruction_set", ["avx512", "avx2", "baseline"])
def test_any_instruction_set_gives_the_same_numbers(
    instruction_set: str, alone: dict[str, np.ndarray], tmp_path: Path
) -> None:
    chosen = {"MPIGP_INSTRUCTION_SET": instruction_set}
    outcome = start(sys.executable, __file__, tmp_path, 1, environment=chosen, timeout=LIMIT)
    found = loaded(outcome, tmp_path)
    if outcome.stdout.strip() != instruction_set:
        pytest.skip(f"this CPU has no {instruction_set}")
    assert found.keys() == alone.keys()
    for name, values in alone.items():
        # Vectors of another length add in another order, and without FMA products round once more: 1e-16 times the
        # condition number, 1e5 at this jitter; in gradients, where such terms cancel, of the largest entry.
        scale = np.abs(values).max()
        tolerance = 1e-12 if name.endswith("bound") else 0.0 if name.endswith("greedy") else 1e-9
        np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance * scale, err_msg=name)


if __name__ == "__main__":
    saved = results(MPI.COMM_WORLD, int(sys.argv[2]))
    if MPI.COMM_WORLD.rank == 0:
        np.savez(Path(sys.argv[1]) / "found.npz", **saved)
        print(native.instruction_set)
