"""The benchmark of kernels: a peer is told the kernel that is timed, and figures are held against what is asked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from benchmarks import kernels
from benchmarks.support import problems
from benchmarks.support.problems import Problem
from mpigp.mpi.rows import Rows
from tests.support.compositions import profile
from tests.support.launching import ROOT, start

PROBLEM = Problem("regression", 60, 8, 8, 1)
ARRAYS = problems.make(PROBLEM)


def timed(kernel: str) -> kernels.Timed:
    rows = Rows(MPI.COMM_SELF, PROBLEM.n, ARRAYS["X"], None, ARRAYS["Y"])
    return kernels.Timed(PROBLEM.model, kernel, rows, ARRAYS)


def covariance(terms: list[list[dict[str, Any]]], A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return K (len(A), len(B)) of a kernel as a peer is told it."""
    total = np.zeros((len(A), len(B)))
    for term in terms:
        product = np.ones_like(total)
        for part in term:
            x, y = A[:, None, part["columns"]], B[None, :, part["columns"]]
            others = np.array([part["shape"]] if part["kind"] == "rq" else part["period"])
            product *= profile(part["kind"], x, y, np.array(part["alpha"]), others)
            product *= 1.0 if part["variance"] is None else part["variance"]
        total += product
    return total


@pytest.mark.parametrize("kernel", kernels.KERNELS)
def test_a_peer_is_told_the_kernel_that_is_timed(kernel: str) -> None:
    each = timed(kernel)
    Z, X = ARRAYS["Z"], ARRAYS["X"]
    ours = each.model.prior_variance(each.globals) * each.model.backend.covariance(Z, X, each.alpha)
    told = json.loads(json.dumps(kernels.described(each)))
    np.testing.assert_allclose(covariance(told, Z, X), ours, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", kernels.KERNELS)
def test_a_peer_is_told_the_jitter_of_the_bound(kernel: str) -> None:
    """By the dense formula, with the kernel as a peer has it; at another jitter the bound is another."""
    each = timed(kernel)
    evaluation, told = each(), kernels.described(each)
    X, Y, Z, n = ARRAYS["X"], ARRAYS["Y"], ARRAYS["Z"], PROBLEM.n
    noise = np.eye(n) / each.globals.beta

    def bound(jitter: float) -> float:
        K_mn = covariance(told, Z, X)
        Q = K_mn.T @ np.linalg.solve(covariance(told, Z, Z) + jitter * np.eye(len(Z)), K_mn)
        fit = float(Y[:, 0] @ np.linalg.solve(Q + noise, Y[:, 0]))
        slack = np.trace(covariance(told, X, X)) - np.trace(Q)
        determinant = np.linalg.slogdet(Q + noise)[1]
        return -0.5 * (n * np.log(2 * np.pi) + determinant + fit + each.globals.beta * slack)

    jitter = each.peer_jitter(evaluation)
    assert evaluation.bound == pytest.approx(bound(jitter), rel=1e-9)
    assert evaluation.bound != pytest.approx(bound(1.5 * jitter), rel=1e-9)


def test_what_a_kernel_is_compared_with_is_timed_too() -> None:
    assert kernels.needed(["rbf + linear"]) == ["rbf", "linear", "rbf + linear"]
    assert kernels.needed(["matern52"]) == ["rbf", "matern52"]


def one_round(seconds: dict[str, float], peer: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"seconds": seconds, "peers": {"gpflow": peer}}


def lines(kernel: str, rounds: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of one kernel, from its rounds."""
    each = {"kernel": kernel, "whitened": [], "bound": -1.0, **kernels.summary(kernel, rounds)}
    size = {**problems.describe(PROBLEM), "kernels": [each]}
    return [*kernels.table({"sizes": [size], "gplvm": {}})][1:]


@pytest.mark.parametrize(("sum_", "missed"), [(1.1, False), (4.6, True)])
def test_a_sum_is_compared_with_its_parts_apart(sum_: float, missed: bool) -> None:
    theirs = {"seconds": 9.0, "ours": 1.0, "bound_difference": 0.0, "version": "1"}
    seconds = {"rbf": 1.0, "linear": 1.0, "rbf + linear": sum_}
    (ours, peer) = lines("rbf + linear", [one_round(seconds, {"rbf + linear": theirs})])
    assert f"{sum_ / 2:.2f}{'!' if missed else ' '} (" in ours
    assert ours.endswith("times rbf and linear")
    assert "9.00 " in peer and "!" not in peer


def test_marks_for_a_peer_that_is_near_or_has_another_bound() -> None:
    theirs = {"seconds": 5.0, "ours": 2.0, "bound_difference": 1e-8, "version": "1"}
    (_, peer) = lines("matern32", [one_round({"rbf": 1.0, "matern32": 1.0}, {"matern32": theirs})])
    assert "2.50!" in peer and peer.endswith("1e-08!")
    (_, peer) = lines("matern32", [one_round({"rbf": 1.0, "matern32": 1.0}, {"matern32": {"error": "no memory"}})])
    assert peer.endswith("failed: no memory")


def printed(file: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Return what the command prints, and what it writes."""
    size = ("--size", "500", "20", "8", "1", "--rounds", "1", "--repeat", "1")
    outcome = start(sys.executable, "-m", "benchmarks.kernels", *size, *options, "--json", file, cwd=ROOT, timeout=1800)
    assert outcome.code == 0, outcome
    return outcome.stdout, json.loads(file.read_text())


@pytest.mark.slow
def test_the_command_prints_all_kernels_and_writes_their_figures(tmp_path: Path) -> None:
    text, report = printed(tmp_path / "kernels.json")
    (size,) = report["sizes"]
    assert [each["kernel"] for each in size["kernels"]] == list(kernels.KERNELS)
    assert all(f"    {kernel} " in text for kernel in kernels.KERNELS)
    for each in size["kernels"]:
        assert each["ratio"]["least"] > 0 and np.isfinite(each["bound"])


@pytest.mark.slow
@pytest.mark.long
def test_the_bounds_are_those_of_gpflow(tmp_path: Path) -> None:
    python = os.environ.get("GPFLOW_PYTHON")
    if not python:
        pytest.skip("GPFLOW_PYTHON names no Python")
    _, report = printed(tmp_path / "kernels.json", "--peer", "gpflow", "--python", python, "--peer-repeat", "1")
    for each in report["sizes"][0]["kernels"]:
        assert each["peers"]["gpflow"]["bound_difference"] < kernels.KERNELS[each["kernel"]].difference, each["kernel"]
    assert report["gplvm"]["gpflow"]["bound_difference"] < kernels.LATENT_DIFFERENCE
