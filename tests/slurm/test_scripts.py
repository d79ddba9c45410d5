"""The scripts of slurm/ in a real Slurm, on several nodes: they end with the bits of a run without Slurm.

All jobs are submitted at once, because most of a job's time is waiting.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import h5py
import pytest

from tests.mpi.test_same_bits import contents
from tests.slurm.cluster import Cluster, Job, wait_until
from tests.support.fits import differences
from tests.support.inputs import write_inputs
from tests.support.launching import ROOT, run, start
from tests.support.phases import Held

SCRIPTS = ROOT / "slurm"
SEEDS = (1, 2, 3)
ITERATIONS = 60
EVERY = 2  # iterations between checkpoints of the jobs that are to be ended
LIMIT = 60  # seconds of a start of the fit that is requeued: no time limit of Slurm is shorter
LIMITS = 2  # which that fit takes longer than
PAUSE = 1.15 * LIMITS * LIMIT / ITERATIONS  # seconds, behind each of its iterations
OPTIONS = ["--model", "gplvm", "--latent", "2", "--inducing", "6", "--hold", "10", "--max-iter", str(ITERATIONS),
           "--tolerance", "0", "--gradient-tolerance", "0"]  # fmt: skip
TWO = ("--nodes=2", "--ntasks-per-node=1")
FOUR = ("--nodes=2", "--ntasks-per-node=2")
THREADS = (*TWO, "--cpus-per-task=2")
SLOW = """\
import os, time
from mpigp.fit.loop import Trace
def slowly(trace, *words, add=Trace.add):
    time.sleep(float(os.environ.get("PAUSE", "0")))
    while len(trace) == 30 and "UNTIL" in os.environ and not os.path.exists(os.environ["UNTIL"]):
        time.sleep(0.05)
    add(trace, *words)
Trace.add = slowly
"""


class Jobs(NamedTuple):
    """The jobs' numbers and the models that they write, by name; what a model must be bit for bit, by seed."""

    cluster: Cluster
    folder: Path
    data: Path
    numbers: dict[str, str]
    references: dict[int, Path]

    def model(self, name: str) -> Path:
        return self.folder / f"{name}.h5"

    def go_on(self, name: str) -> None:
        """Let a job go on that waits half way, so that it cannot end before it is met, however slow this machine is."""
        (self.folder / f"{name}.go").touch()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")

    def ended(self, name: str, seconds: float = 600) -> Job:
        return self.cluster.wait(self.numbers[name], seconds)

    def check(self, name: str, seed: int = 0, but: tuple[str, ...] = ()) -> None:
        """See that a job completed on two nodes with the right result, `but` for attributes that may differ."""
        job = self.ended(name)
        assert (job.state, job.code, job.nodes) == ("COMPLETED", 0, 2), self.log(name)
        assert self.cluster.launched(self.numbers[name]) == 2
        assert [each for each in differences(self.references[seed], self.model(name)) if each not in but] == []


@pytest.fixture(scope="session")
def jobs(cluster: Cluster, without_pmix: str, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """All jobs that need nothing but Open MPI; `without_pmix` asks srun, which would wait behind them."""
    folder = tmp_path_factory.mktemp("jobs")
    data = write_inputs(folder, "gplvm", 300, 6, 2, 3).data
    (folder / "sitecustomize.py").write_text(SLOW)
    numbers: dict[str, str] = {}
    slow = {"PYTHONPATH": str(folder)}

    def submit(name: str, script: str, *options: str, more: tuple[str, ...] = (), **environment: str) -> None:
        words = [*options, f"--output={folder}/{name}.out", SCRIPTS / f"{script}.sbatch"]
        words += [data, "-o", folder / f"{name}.h5", *OPTIONS, *more]
        numbers[name] = cluster.sbatch(*words, environment=cluster.environment(**environment), cwd=folder)

    # Every half minute Slurm looks whose time is over in less than 15 + 30 seconds: a start has 15 to 45 of its limit.
    submit("requeued", "fit-requeue", *TWO, f"--time=0:{LIMIT}", "--signal=B:USR1@15", **slow, PAUSE=str(PAUSE))
    array = ["--array=1-3", "--nodes=2", "--ntasks-per-node=1", "--time=10", "--sbatch=output=array-%a.out", "--submit"]
    words = ["slurm", "fit", data, "-o", "array-%a.h5", *OPTIONS, "--seed", "%a", *array, "--json"]
    outcome = run(None, *words, environment=cluster.environment(**slow, UNTIL=f"{folder}/array.go"), cwd=folder)
    assert outcome.code == 0, outcome
    numbers |= {f"array-{seed}": f"{outcome.figures['job']}_{seed}" for seed in SEEDS}
    often = ("--checkpoint-every", str(EVERY))
    submit("cancelled", "fit", *TWO, more=often, **slow, UNTIL=f"{folder}/cancelled.go")
    metrics = ("--metrics", f"{folder}/metrics")
    submit("cancelled-srun", "fit-srun", *TWO, more=metrics, **slow, UNTIL=f"{folder}/cancelled-srun.go")
    submit("killed", "fit-requeue", *TWO, more=often, **slow, UNTIL=f"{folder}/killed.go")
    submit("fit", "fit", *FOUR)
    submit("fit-srun", "fit-srun", *FOUR)
    submit("fit-hybrid", "fit-hybrid", *THREADS)
    submit("fit-requeue", "fit-requeue", *FOUR)
    submit("wrong", "fit-srun", *FOUR, SLURM_MPI_TYPE="pmi2")

    references = {seed: folder / f"reference-{seed}.h5" for seed in (0, *SEEDS)}
    for seed, model in references.items():
        assert run(None, "fit", data, "-o", model, *OPTIONS, "--seed", seed).code == 0
    return Jobs(cluster, folder, data, numbers, references)


def resumed(jobs: Jobs, name: str) -> list[str]:
    """Go on, without Slurm, from the checkpoint that a job left; return what differs from the uninterrupted run."""
    assert run(None, "fit", jobs.data, "-o", jobs.model(name), *OPTIONS, "--resume").code == 0
    return differences(jobs.references[0], jobs.model(name))


def iterations(model: Path) -> int:
    """Return the iterations of a model, after reading all of the file."""
    return len(contents(model)["trace/bound"])


def test_an_array_runs_side_by_side(jobs: Jobs) -> None:
    numbers = [jobs.numbers[f"array-{seed}"] for seed in SEEDS]
    wait_until(lambda: all(jobs.cluster.job(number).state == "RUNNING" for number in numbers), 300)
    jobs.go_on("array")
    for seed in SEEDS:
        jobs.check(f"array-{seed}", seed)


def test_scancel_leaves_a_whole_checkpoint(jobs: Jobs) -> None:
    """mpiexec ends the ranks at once: what is left is the last checkpoint."""
    model = jobs.model("cancelled")
    wait_until(lambda: model.exists() and iterations(model) > EVERY, 300)
    jobs.cluster.call("scancel", jobs.numbers["cancelled"])
    jobs.go_on("cancelled")
    assert jobs.ended("cancelled").state == "CANCELLED"
    assert EVERY < iterations(model) < ITERATIONS
    assert resumed(jobs, "cancelled") == []


@pytest.mark.usefixtures("pmix")
def test_under_srun_scancel_saves_before_it_ends(jobs: Jobs) -> None:
    """Slurm tells the ranks themselves, and waits for them: no checkpoint was due before."""
    wait_until(lambda: (jobs.folder / "metrics").exists() and (jobs.folder / "metrics").stat().st_size > 0, 300)
    jobs.cluster.call("scancel", jobs.numbers["cancelled-srun"])
    jobs.go_on("cancelled-srun")
    job = jobs.ended("cancelled-srun")
    assert (job.state, job.code) == ("CANCELLED", 75), jobs.log("cancelled-srun")
    with h5py.File(jobs.model("cancelled-srun")) as file:
        assert file.attrs["stopped"] == "SIGTERM was received"
    assert 0 < iterations(jobs.model("cancelled-srun")) < ITERATIONS
    assert resumed(jobs, "cancelled-srun") == []


def test_a_job_that_dies_goes_on_from_its_checkpoint(jobs: Jobs) -> None:
    """mpiexec is killed, and its ranks with it; the launcher starts it again."""
    model = jobs.model("killed")
    wait_until(lambda: model.exists() and iterations(model) > EVERY, 300)
    kill(jobs.numbers["killed"], lambda process, marks: os.readlink(process / "exe").endswith("prterun"))
    jobs.go_on("killed")
    job = jobs.ended("killed")
    assert (job.state, job.restarts) == ("COMPLETED", 0), jobs.log("killed")
    assert "mpigp: the job died: starting it again from its checkpoint" in jobs.log("killed")
    assert differences(jobs.references[0], model) == []


def test_a_rank_that_dies_on_another_node_is_survived(jobs: Jobs) -> None:
    metrics = jobs.folder / "bereft.jsonl"
    slow = jobs.cluster.environment(PYTHONPATH=str(jobs.folder), UNTIL=f"{jobs.folder}/bereft.go")
    submitted(jobs, "bereft", "fit", slow, FOUR, "--metrics", metrics)
    wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, 300)
    kill(jobs.numbers["bereft"], lambda process, marks: b"OMPI_COMM_WORLD_RANK=2" in marks)
    jobs.go_on("bereft")
    job = jobs.ended("bereft")
    assert (job.state, job.code) == ("COMPLETED", 0), jobs.log("bereft")
    assert "mpigp: rank 2 was lost: going on with 3" in jobs.log("bereft")
    assert differences(jobs.references[0], jobs.model("bereft")) == []


@pytest.mark.usefixtures("pmix")
@pytest.mark.parametrize(("phase", "number"), [("initializing", "INT"), ("writing", "USR1")])
def test_under_srun_a_signal_stops_a_fit_before_and_behind_its_iterations(phase: str, number: str, jobs: Jobs) -> None:
    """Also before there is anything to save; then `--resume` starts from the beginning."""
    held = Held(jobs.folder / f"held-{phase}", phase)
    submitted(jobs, phase, "fit-srun", jobs.cluster.environment(**held.environment), TWO)
    wait_until(lambda: held.there() >= (1 if phase == "writing" else 2), 300)
    jobs.cluster.call("scancel", f"--signal={number}", jobs.numbers[phase])
    if phase == "writing":
        wait_until(lambda: held.heard() >= 1, 300)
        held.go()
    job = jobs.ended(phase)
    assert (job.state, job.code) == ("FAILED", 75), jobs.log(phase)
    assert jobs.log(phase).count("go on with --resume") == 1, jobs.log(phase)
    assert jobs.model(phase).exists() is (phase == "writing")
    assert resumed(jobs, phase) == []


def kill(number: str, chosen: Callable[[Path, list[bytes]], bool]) -> None:
    """Kill those processes of a job that are chosen by their folder in /proc and their environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            marks = (process / "environ").read_bytes().split(b"\0")
            if f"SLURM_JOB_ID={number}".encode() in marks and chosen(process, marks):
                os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.usefixtures("pmix")
@pytest.mark.parametrize(
    ("name", "ranks", "threads"), [("fit", 4, 1), ("fit-srun", 4, 1), ("fit-hybrid", 2, 2), ("fit-requeue", 4, 1)]
)
def test_each_script_fits_on_two_nodes(name: str, ranks: int, threads: int, jobs: Jobs) -> None:
    jobs.check(name)
    with h5py.File(jobs.model(name)) as file:
        machine = json.loads(file.attrs["machine"])
    assert (machine["ranks"], machine["threads"]) == (ranks, threads)


def test_srun_with_the_wrong_protocol_is_detected(jobs: Jobs) -> None:
    """Open MPI does not speak pmi2: each task believes to be alone."""
    check_detected(jobs, "wrong", ranks=4)


def check_detected(jobs: Jobs, name: str, ranks: int) -> None:
    """See that a job has ended because its tasks were not connected, and that this was said once."""
    job = jobs.ended(name)
    assert (job.state, job.code) == ("FAILED", 2), jobs.log(name)
    (said,) = [line for line in jobs.log(name).splitlines() if line.startswith("mpigp: ")]
    assert f"SLURM_NTASKS is {ranks}, but MPI connected 1 rank" in said
    assert "--mpi=pmix" in said
    assert not jobs.model(name).exists()


def test_a_scaling_study(jobs: Jobs) -> None:
    """A measurement on 1, 2 and 4 ranks, the last on both nodes."""
    folder = jobs.folder / "study"
    study = ["strong", jobs.data, "-o", folder, "--model", "gplvm", "--latent", 2, "--inducing", 6, "--rounds", 1]
    log = f"--output={jobs.folder}/scaling.out"
    jobs.numbers["scaling"] = jobs.cluster.sbatch(*FOUR, log, SCRIPTS / "scaling.sbatch", *study, cwd=jobs.folder)
    job = jobs.ended("scaling")
    assert (job.state, job.code, job.nodes) == ("COMPLETED", 0, 2), jobs.log("scaling")
    assert sorted(path.name for path in folder.glob("*.json")) == [f"strong-{ranks:05d}.json" for ranks in (1, 2, 4)]


def test_mpich_under_srun(jobs: Jobs, mpich: str) -> None:
    submitted(jobs, "mpich", "fit-srun", jobs.cluster.environment(mpich, SLURM_MPI_TYPE="pmi2"))
    jobs.check("mpich", but=("@versions",))


def test_mpich_under_mpiexec_from_an_installed_mpigp(jobs: Jobs, mpich: str) -> None:
    """The command that writes the script finds it, and the script finds the command's own mpigp and mpiexec."""
    job = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", f"--sbatch=output={jobs.folder}/installed.out"]
    words = ["slurm", "fit", jobs.data, "-o", jobs.model("installed"), *OPTIONS, *job, "--submit", "--json"]
    outcome = start(mpich, "-m", "mpigp", *words, environment=jobs.cluster.environment(), cwd=jobs.folder)
    assert outcome.code == 0, outcome
    jobs.numbers["installed"] = outcome.figures["job"]
    jobs.check("installed", but=("@versions",))


def test_mpich_alone_under_srun_is_detected(jobs: Jobs, mpich: str) -> None:
    submitted(jobs, "mpich-alone", "fit-srun", jobs.cluster.environment(mpich, SLURM_MPI_TYPE="none"))
    check_detected(jobs, "mpich-alone", ranks=2)


def submitted(
    jobs: Jobs, name: str, script: str, environment: dict[str, str], size: tuple[str, ...] = THREADS, *more: object
) -> None:
    """Submit a job of this size."""
    words = [*size, f"--output={jobs.folder}/{name}.out", SCRIPTS / f"{script}.sbatch"]
    words += [jobs.data, "-o", jobs.model(name), *OPTIONS, *more]
    jobs.numbers[name] = jobs.cluster.sbatch(*words, environment=environment, cwd=jobs.folder)


@pytest.mark.last
def test_a_fit_much_longer_than_its_limit_requeues_itself_until_it_is_done(jobs: Jobs) -> None:
    """It takes minutes, of sleep: asked for when all other tests are done."""
    job = jobs.ended("requeued", 1200)
    log = jobs.log("requeued")
    assert (job.state, job.code) == ("COMPLETED", 0), log
    assert jobs.cluster.known(job.number)["TimeLimit"] == "00:01:00"
    seconds = contents(jobs.model("requeued"))["trace/seconds"][-1]  # of all starts, but for the last pause of each
    assert seconds + job.restarts * PAUSE > LIMITS * LIMIT
    assert job.restarts >= LIMITS, log
    assert log.count("stopped because SIGUSR1 was received") == job.restarts
    assert differences(jobs.references[0], jobs.model("requeued")) == []
