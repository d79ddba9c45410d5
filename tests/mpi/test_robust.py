"""Bad input ends every rank at once: exit code 2, one line that says where and what to do, and no output harmed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from tests.mpi.bad_inputs import (
    CASES,
    D,
    M,
    N,
    Q,
    data_missing,
    nan_in_the_rows_of_two_ranks,
    output_folder_missing,
    unknown_flag,
)
from tests.support.inputs import change, write_inputs
from tests.support.launching import ROOT, at_once, mpiexec, run
from tests.support.refusals import (
    Case,
    Refused,
    Setting,
    assert_case_refused,
    assert_refused,
    state,
    tried,
)


def setting(folder: Path, case: Case) -> Setting:
    """Make the inputs of a case."""
    inputs = write_inputs(folder, case.options["model"], N, M, Q, D)
    output = folder / "gradient.h5"
    output.write_bytes(b"an earlier result")
    os.utime(output, (1, 1))
    more = case.spoil(inputs) or []
    words = ["evaluate", *inputs.arguments, *([] if "-o" in more else ["-o", output]), *more]
    return Setting(folder, inputs._asdict(), words)


@pytest.fixture(scope="module", params=[1, 3], ids="{} ranks".format)
def refused(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Refused]:
    """All cases, in one start of mpiexec."""
    return tried(tmp_path_factory.mktemp("robust"), request.param, CASES, setting)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_is_refused(case: Case, refused: dict[str, Refused]) -> None:
    assert_case_refused(case, refused[case.name])


WAYS = [  # one case for each way in which an error comes up
    unknown_flag,  # before there is MPI
    output_folder_missing,  # on rank 0 alone
    data_missing,  # on all ranks
    nan_in_the_rows_of_two_ranks,  # on some
]


@pytest.mark.parametrize("ranks", [None, 3])
@pytest.mark.parametrize("spoil", WAYS, ids=lambda spoil: spoil.__name__)
def test_the_process_ends_with_code_2_and_one_line(spoil: Callable, ranks: int | None, tmp_path: Path) -> None:
    case = CASES.of(spoil)
    made = setting(tmp_path, case)
    before = state(tmp_path)
    assert_refused(run(ranks, *made.arguments), *made.expected(case))
    assert state(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to the superuser")
def test_folder_that_is_not_writable(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "inputs", "gplvm", 5, 2, 1, 1)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    for outcome in at_once(
        *[lambda ranks=ranks: run(ranks, "evaluate", *inputs.arguments, "-o", folder / "g.h5") for ranks in (None, 3)]
    ):
        assert_refused(outcome, str(folder), "not writable", "choose another output path")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("spoil", [unknown_flag, nan_in_the_rows_of_two_ranks], ids=lambda spoil: spoil.__name__)
def test_under_plain_mpiexec_too_one_line_is_ours(spoil: Callable, tmp_path: Path) -> None:
    case = CASES.of(spoil)
    made = setting(tmp_path, case)
    before = state(tmp_path)
    outcome = mpiexec(3, ROOT / "run.py", *made.arguments)
    assert outcome.code == 2
    (line,) = outcome.ours
    assert [word for word in made.expected(case) if word not in line] == []
    assert state(tmp_path) == before


def test_a_slow_first_rank_still_says_what_is_wrong(tmp_path: Path) -> None:
    """A rank that ends with an error ends the others: the one that has something to say must not be among them."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import os, time\n"
        "from mpigp.cli import main\n"
        "from mpigp.mpi.processes import launched_rank\n"
        "if launched_rank(os.environ) == 0:\n"
        "    time.sleep(2)\n"
        "main()\n"
    )
    outcome = mpiexec(3, script, "evaluate", "--frobnicate")
    assert outcome.code == 2
    assert len(outcome.ours) == 1


def test_coinciding_inducing_points_without_jitter_end(tmp_path: Path) -> None:
    """Ten times no jitter is no jitter: trying again with more must get somewhere."""
    inputs = write_inputs(tmp_path, "regression", 100, 4, 2, 1)
    with h5py.File(inputs.params, "r+") as file:
        file["Z"][1] = file["Z"][0]
    outcome = run(None, "evaluate", *inputs.arguments, "--jitter", "0", "--json")
    assert outcome.code == 0, outcome.stderr
    assert 0 < outcome.figures["jitter"] < 1e-8


@pytest.mark.parametrize("model", ["regression", "gplvm"])
def test_outputs_too_large_to_square_are_refused(model: str, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, model, 100, 4, 2, 1)
    change(inputs.data, "Y", (7, 0), 1e200)
    assert_refused(run(None, "evaluate", *inputs.arguments), str(inputs.data), "/Y")


# ranks that are not connected


def test_copies_that_are_not_connected_say_so_once(tmp_path: Path) -> None:
    """srun with a protocol that this MPI does not speak starts copies that each believe to be alone."""
    inputs = write_inputs(tmp_path, "regression", 5, 2, 1, 1)
    output = tmp_path / "gradient.h5"
    copies = [
        lambda rank=rank: run(None, "evaluate", *inputs.arguments, "-o", output,
                              environment={"SLURM_NTASKS": "4", "SLURM_PROCID": str(rank)})
        for rank in range(4)
    ]  # fmt: skip
    outcomes = at_once(*copies)
    assert max(outcome.code for outcome in outcomes) == 2  # what srun makes of the codes of its tasks
    assert_refused(outcomes[0], "SLURM_NTASKS is 4", "1 rank", "srun --mpi=", "mpiexec")
    assert [outcome.stderr for outcome in outcomes[1:]] == ["", "", ""]
    assert not output.exists()


def test_one_rank_of_mpiexec_within_a_larger_allocation_is_meant(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, "regression", 5, 2, 1, 1)
    outcome = run(1, "evaluate", *inputs.arguments, "--json", environment={"SLURM_NTASKS": "4"})
    assert outcome.code == 0, outcome.stderr
    assert outcome.figures["ranks"] == 1
