"""The failure experiment: each way to treat failures against its definition, and numbers that only the seed decides."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from matplotlib.image import imread
from mpi4py import MPI

from experiments import command
from experiments.cluster import WAYS, Cluster
from experiments.failures import Job, Study, checked, failed, run
from mpigp.cli import main
from mpigp.fit.objective import Objective
from mpigp.fit.optimizers.gd import GradientDescent
from mpigp.fit.optimizers.scg import SCG
from mpigp.fit.options import Options
from mpigp.fit.setup import initialize
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import GPLVM
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from tests.support import reference
from tests.support.launching import ROOT, mpiexec, start
from tests.support.problems import GLOBALS, Problem, change, evaluate, make

SELF = MPI.COMM_SELF
N, M, Q, D, NODES = 300, 5, 2, 3, 3  # five chunks, of 64 rows: nodes of one, two and two
JITTER = 1e-6
DEAD = slice(64, 192)  # the rows of node 1
SMALL = Study(nodes=NODES, iterations=12, repeats=2, inducing=M, latent=Q, every=1, rates=(0.0, 0.3))


def cluster_of(problem: Problem, way: str) -> Cluster:
    rows = Rows(SELF, len(problem.Y), problem.mu.copy(), problem.S.copy(), problem.Y.copy())
    return Cluster(SELF, rows, M, NODES, way)


def alive(problem: Problem) -> Problem:
    """Return the problem without the rows of node 1."""
    mu, S, Y, parameters = problem
    return Problem(*(np.delete(each, DEAD, axis=0) for each in (mu, S, Y)), parameters)


def statistics(mu, S, Y, Z, alpha, variance):
    """Return Σψ1Y, Ψ2 and KL by their definitions."""
    return (
        reference.psi1(mu, S, Z, variance, alpha).T @ Y,
        reference.psi2(mu, S, Z, variance, alpha),
        reference.divergence(mu, S),
    )


def from_statistics(sums, YY, n, Z, alpha, variance, beta):
    K = reference.gram(Z, variance, alpha, JITTER)
    return reference.bound_from_statistics(K, n * variance, sums[0], sums[1], YY, sums[2], n, D, beta)


def values_of(problem: Problem) -> dict:
    return {"mu": problem.mu, "S": problem.S, **problem.parameters._asdict()}


def check_gradient(found: Globals, rows: Rows, function, values: dict, chosen: slice | np.ndarray) -> None:
    """Compare a gradient, its mu and S at the chosen rows alone, with complex steps."""
    both = {name: getattr(found, name) for name in GLOBALS} | {
        name: each[chosen] for name, each in rows.gradients.items()
    }
    for name, gradient in both.items():
        wanted = reference.complex_step(function, values, name)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max(), err_msg=name)


# what the cluster sees


@pytest.mark.parametrize("way", WAYS)
def test_without_failures_a_cluster_is_an_evaluator_bit_for_bit(way: str) -> None:
    problem = make(N, M, Q, D)
    plain = evaluate(GPLVM(), *problem, JITTER)
    cluster = cluster_of(problem, way)
    found = cluster(problem.parameters, JITTER)
    assert found.bound == plain.bound
    for name, gradient in plain.gradients().items():
        mine = cluster.rows.gradients[name] if name in ("mu", "S") else getattr(found.gradient, name)
        assert np.array_equal(mine, gradient), name


def test_drop_is_the_bound_of_the_rows_that_answered() -> None:
    problem = make(N, M, Q, D)
    rest = alive(problem)
    wanted = evaluate(GPLVM(), *rest, JITTER)
    cluster = cluster_of(problem, "drop")
    cluster(problem.parameters, JITTER)  # which leaves gradients behind
    cluster.dead = frozenset({1})
    found = cluster(problem.parameters, JITTER)
    np.testing.assert_allclose(found.bound, wanted.bound, rtol=1e-13)
    for name in GLOBALS:
        np.testing.assert_allclose(getattr(found.gradient, name), getattr(wanted.gradient, name), rtol=1e-9)
    for name, gradient in cluster.rows.gradients.items():
        np.testing.assert_allclose(np.delete(gradient, DEAD, axis=0), wanted.gradients()[name], rtol=1e-9)
        assert not gradient[DEAD].any()


def test_rescale_scales_the_sums_and_has_the_gradient_of_what_it_sees() -> None:
    problem = make(N, M, Q, D)
    rest = alive(problem)
    factor = N / len(rest.Y)

    def seen(mu, S, Z, alpha, variance, beta):
        sums = [factor * each for each in statistics(mu, S, rest.Y, Z, alpha, variance)]
        return from_statistics(sums, factor * (rest.Y**2).sum(), N, Z, alpha, variance, beta)

    cluster = cluster_of(problem, "rescale")
    cluster(problem.parameters, JITTER)  # which leaves gradients behind
    cluster.dead = frozenset({1})
    found = cluster(problem.parameters, JITTER)
    np.testing.assert_allclose(found.bound, seen(**values_of(rest)), rtol=1e-11)
    check_gradient(found.gradient, cluster.rows, seen, values_of(rest), np.delete(np.arange(N), DEAD))
    assert not any(gradient[DEAD].any() for gradient in cluster.rows.gradients.values())


def test_stale_uses_the_last_terms_of_both_rounds() -> None:
    old = make(N, M, Q, D)
    other = make(N, M, Q, D, seed=1)
    Z = old.parameters.Z + 0.2 * other.parameters.Z
    new = change(old, Z=Z, alpha=1.05 * old.parameters.alpha, beta=3.0)
    new = new._replace(mu=old.mu + 0.02 * other.mu, S=1.1 * old.S)
    was, now = old.parameters, new.parameters
    last = statistics(old.mu[DEAD], old.S[DEAD], old.Y[DEAD], was.Z, was.alpha, was.variance)

    def seen(mu, S, Z, alpha, variance, beta):
        fresh = statistics(mu, S, alive(new).Y, Z, alpha, variance)
        # the nodes' sums are those of the kernel of unit variance, so the stale ones follow the variance
        ratio = variance / was.variance
        sums = [fresh[0] + ratio * last[0], fresh[1] + ratio**2 * last[1], fresh[2] + last[2]]
        return from_statistics(sums, (new.Y**2).sum(), N, Z, alpha, variance, beta)

    def through_the_node(Z, alpha):
        """The bound at the old parameters, of which only the terms of node 1 may change."""
        fresh = statistics(*alive(old)[:3], was.Z, was.alpha, was.variance)
        sent = statistics(old.mu[DEAD], old.S[DEAD], old.Y[DEAD], Z, alpha, was.variance)
        sums = [a + b for a, b in zip(fresh, sent, strict=True)]
        return from_statistics(sums, (old.Y**2).sum(), N, was.Z, was.alpha, was.variance, was.beta)

    cluster = cluster_of(old, "stale")
    cluster(was, JITTER)
    order = cluster.last[0].whitening.order
    cluster.rows.mu[...], cluster.rows.S[...] = new.mu, new.S
    cluster.dead = frozenset({1})
    found = cluster(now, JITTER)
    assert not np.array_equal(cluster.last[0].whitening.order, order), "a case in which the order stays says less"
    np.testing.assert_allclose(found.bound, seen(**values_of(alive(new))), rtol=1e-10)
    sent = {
        name: reference.complex_step(through_the_node, {"Z": was.Z, "alpha": was.alpha}, name)
        for name in ("Z", "alpha")
    }
    fresh = found.gradient._replace(Z=found.gradient.Z - sent["Z"], alpha=found.gradient.alpha - sent["alpha"])
    check_gradient(fresh, cluster.rows, seen, values_of(alive(new)), np.delete(np.arange(N), DEAD))
    assert not any(gradient[DEAD].any() for gradient in cluster.rows.gradients.values())
    again = cluster(now, JITTER)  # the terms are still those from before the failure
    assert again.bound == found.bound and np.array_equal(again.gradient.Z, found.gradient.Z)


# runs


def outputs() -> np.ndarray:
    Y = make(N, M, Q, D).Y
    return (Y - Y.mean(axis=0)) / Y.std(axis=0)


@pytest.mark.parametrize("optimizer", [SCG, GradientDescent])
def test_at_rate_zero_all_ways_are_a_run_without_simulated_failures(optimizer: type) -> None:
    Y = outputs()
    study = Study(**{**vars(SMALL), "optimizer": {SCG: "scg", GradientDescent: "gd"}[optimizer]})
    start, mu, S = initialize(None, DistributedRows(SELF, N, Y), Options(model="gplvm", inducing=M, latent=Q), seed=1)
    objective = Objective(Evaluator(SELF, GPLVM(), Rows(SELF, N, mu, S, Y), M, Q), JITTER)
    plain = optimizer(objective, objective.space, objective.point(start), patience=1)
    bounds = [-plain.value]
    for _ in range(study.iterations):
        plain.step()
        bounds.append(-plain.value)
    assert len(set(bounds)) > study.iterations // 2
    for way in (*WAYS, None):
        found = run(SELF, Y, study, Job(1, 0.0, way))
        assert found.seen == bounds and found.true == bounds
        assert sorted(found.alpha) == sorted(objective.parameters(plain.point).alpha)
        assert found.failures == 0


def test_recovering_is_the_same_as_not_failing_and_the_other_ways_are_not() -> None:
    Y = outputs()
    without = run(SELF, Y, SMALL, Job(0, 0.0, None))
    for rate in (0.05, 0.3, 0.9):
        for way in WAYS:
            found = run(SELF, Y, SMALL, Job(0, rate, way))
            assert (found.failures > 0) == (sum(len(failed(SMALL, 0, i, rate)) for i in range(1, 13)) > 0)
            same = (found.true, found.seen, found.alpha) == (without.true, without.seen, without.alpha)
            assert same == (way == "recover" or not found.failures)
    assert found.failures > 12


def test_dropping_a_node_that_is_always_dead_is_a_fit_of_the_other_rows() -> None:
    problem = make(N, M, Q, D)
    objectives = []
    for each, dead in ((problem, frozenset({1})), (alive(problem), frozenset())):
        rows = Rows(SELF, len(each.Y), each.mu.copy(), each.S.copy(), each.Y.copy())
        cluster = Cluster(SELF, rows, M, NODES, "drop")
        cluster.dead = dead
        objectives.append(Objective(cluster, JITTER))
    found, wanted = (SCG(each, each.space, each.point(problem.parameters)) for each in objectives)
    first = wanted.value
    for _ in range(10):
        assert found.step() and wanted.step()
        np.testing.assert_allclose(found.value, wanted.value, rtol=1e-7)  # rounding grows along the way
    assert wanted.value < first - 50
    np.testing.assert_allclose(found.point.shared, wanted.point.shared, rtol=1e-4, atol=1e-5)
    mu = found.point.local[0, 0].reshape(N, Q)
    assert np.array_equal(mu[DEAD], problem.mu[DEAD])


def test_the_seen_bound_of_dropping_is_of_fewer_rows_and_the_true_one_of_all() -> None:
    Y, study = outputs(), Study(**{**vars(SMALL), "iterations": 30})
    found = run(SELF, Y, study, Job(0, 0.3, "drop"))
    assert found.true[0] == found.seen[0]  # nobody fails at the start
    assert any(true != seen for true, seen in zip(found.true, found.seen, strict=True))


def test_failures_depend_on_seed_repeat_iteration_and_node_alone() -> None:
    many, few = Study(nodes=40), Study(nodes=10)
    for iteration in range(50):
        at = {rate: failed(many, 3, iteration, rate) for rate in (0.0, 0.1, 0.5)}
        assert not at[0.0] and at[0.1] <= at[0.5]
        assert {node for node in at[0.1] if node < 10} >= failed(few, 3, iteration, 0.1)
        assert len(failed(few, 3, iteration, 0.999)) <= 9, "nobody is left"
    drawn = [failed(many, repeat, i, 0.5) for repeat in (0, 1) for i in range(20)]
    drawn += [failed(Study(nodes=40, seed=1), 0, i, 0.5) for i in range(20)]
    assert len(set(drawn)) == len(drawn)
    rate = np.mean([len(failed(many, 0, i, 0.02)) / 40 for i in range(1000)])
    assert abs(rate - 0.02) < 5 * (0.02 * 0.98 / 40_000) ** 0.5


def test_the_true_bound_is_evaluated_at_the_start_now_and_then_and_at_the_end() -> None:
    assert checked(Study(iterations=25, every=10)) == [0, 10, 20, 25]
    every = run(SELF, outputs(), SMALL, Job(0, 0.3, "stale"))
    rarely = run(SELF, outputs(), Study(**{**vars(SMALL), "every": 5}), Job(0, 0.3, "stale"))
    assert rarely.seen == every.seen, "looking at the true bound changed the run"
    assert rarely.true == [every.true[i] for i in (0, 5, 10, 12)]


# the command

WORDS = ["--iterations", 6, "--repeats", 3, "--rates", "0,0.1,0.3", "--nodes", 3]
WORDS += ["--inducing", M, "--latent", Q, "--every", 2]


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as end:
        command.main("failures", [str(word) for word in words])
    return int(end.value.code or 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["Y"] = make(N, M, Q, D).Y
    return path


def test_the_table_the_json_and_the_runs_agree(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    assert call(data, *WORDS, "-o", tmp_path, "--json") == 0
    *text, last = capfd.readouterr().out.splitlines()
    told, kept = json.loads(last), json.loads((tmp_path / "failures.json").read_text())
    assert {name: value for name, value in kept.items() if name != "runs"} == {
        name: value for name, value in told.items() if name != "written"
    }
    assert kept["iterations"] == [0, 2, 4, 6] and kept["recover_coincides"] is True and kept["seconds"] > 0
    assert len(kept["runs"]) == 3 * (1 + 2 * len(WAYS)) and len(kept["table"]) == 1 + 2 * len(WAYS)
    rows = [line.split() for line in text[1 : 1 + len(kept["table"])]]
    for line, row in zip(kept["table"], rows, strict=True):
        runs = [each for each in kept["runs"] if each["rate"] == line["rate"] and each["way"] in (line["way"], None)]
        assert [each["repeat"] for each in runs] == [0, 1, 2]
        bounds = [each["true"][-1] for each in runs]
        assert line["bound"] == pytest.approx(sum(bounds) / 3)
        assert line["spread"] == pytest.approx(np.std(bounds, ddof=1))
        assert line["median"] == sorted(bounds)[1]
        alpha = np.array([each["alpha"] for each in runs])
        assert (np.diff(alpha, axis=1) <= 0).all()
        assert line["largest"] == pytest.approx(alpha[:, 0].mean())
        assert line["others"] == pytest.approx(alpha[:, 1:].mean())
        assert row[:2] == [f"{line['rate']:.3g}", line["way"]]
        assert float(row[2]) == pytest.approx(line["bound"], abs=0.051)
        assert float(row[6]) == pytest.approx(line["largest"], abs=0.00051)
    assert any(re.match(r"[\d.]+ s on 1 ranks of 1 threads, ", line) for line in text)
    assert (tmp_path / "failures.txt").read_text().splitlines() == text[: -len(told["written"])]


def test_the_figures_are_whole(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    assert call(data, *WORDS, "-o", tmp_path) == 0
    picture = imread(tmp_path / "failures.png")
    assert picture.shape[0] > 500 and picture[..., :3].std() > 0.05
    svg = (tmp_path / "failures.svg").read_text()
    assert not re.search(r"(href|src)=\"(?!#)", svg), "refers to something outside of the file"
    for way in WAYS:
        assert f"<!-- {way} -->" in svg


def test_ranks_and_threads_change_no_number(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # experiments are run from a checkout
    found = []
    for ranks, threads in ((None, 1), (2, 1), (None, 2)):
        folder = tmp_path / f"{ranks}-{threads}"
        folder.mkdir()
        words = ["-m", "experiments.failures", data, *WORDS, "-o", folder, "--threads", threads]
        outcome = mpiexec(ranks, *words) if ranks else start(sys.executable, *words)
        assert (outcome.code, outcome.stderr) == (0, "")
        kept = json.loads((folder / "failures.json").read_text())
        assert (kept.pop("ranks"), kept.pop("threads")) == (ranks or 1, threads)
        assert kept.pop("made")["machine"]["ranks"] == (ranks or 1)
        for each in (kept, *kept["runs"]):
            assert each.pop("seconds") > 0
        found.append((kept, (folder / "failures.svg").read_text()))
    assert found[0] == found[1] == found[2]


def test_oil_flow_is_that_of_synth(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    few = ["--iterations", 2, "--repeats", 1, "--rates", "0", "--nodes", 2, "--inducing", 4, "--latent", 2]
    (tmp_path / "own").mkdir()
    (tmp_path / "file").mkdir()
    with pytest.raises(SystemExit) as end:
        main(["synth", "oilflow", "--rows", "150", "-o", str(tmp_path / "oil.h5")])
    assert not end.value.code
    assert call("--rows", 150, *few, "-o", tmp_path / "own") == 0
    assert call(tmp_path / "oil.h5", *few, "-o", tmp_path / "file") == 0
    own, file = (json.loads((tmp_path / name / "failures.json").read_text()) for name in ("own", "file"))
    assert own["shape"] == [150, 12] and own["table"] == file["table"] and own["recover_coincides"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rates", "0,1"], "--rates"),
        (["--rates", "-0.1"], "--rates"),
        (["--rates", "nan"], "--rates"),
        (["--rates", "x"], "--rates"),
        (["--rates", ","], "--rates"),
        (["--rates", "0.1,0.1"], "twice"),
        (["--nodes", 0], "--nodes"),
        (["--nodes", 6], "at most 5"),
        (["--iterations", 0], "--iterations"),
        (["--repeats", 0], "--repeats"),
        (["--every", 0], "--every"),
        (["--inducing", N + 1], "--inducing"),
        (["--latent", D + 1], "--latent"),
        (["--seed", -1], "--seed"),
        (["--jitter", -1], "--jitter"),
        (["--rows", 10], "--rows"),
        (["--y", "none"], "none"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(
    words: list, said: str, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert call(data, "-o", folder, "--nodes", 3, "--latent", Q, *words) == 2
    out, err = capfd.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and said in err
    assert not list(folder.iterdir())


def test_it_needs_a_folder_and_matplotlib(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(data, *WORDS, "-o", tmp_path / "none") == 2
    assert "is no folder" in capfd.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert call(data, *WORDS, "-o", tmp_path) == 2
    err = capfd.readouterr().err
    assert "pip install 'mpigp[report]'" in err and len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data.h5"]
