"""Which test runs which command of the pages: every one that pages.py finds is of exactly one kind.

short      run by default, page by page and in order
long       takes more than a minute or two: run by `python -m pytest -m long`
installs   into a new environment: run by `python -m pytest -m long`
slurm      run in a real Slurm, by tests/slurm
ci         run by .ci/run
itself     the command that runs the long ones
"""

from __future__ import annotations

from pathlib import Path

from pages import INSTALLS, SENTENCE, SLURM, Block, commands, pages

PAGES = pages()
ITSELF = "python -m pytest -m long"
INSTALL = 1200  # seconds, of what installs and compiles
# What takes more than a minute or two, and the seconds it may take: several times what it took on two cores.
FEATURES = "python -m benchmarks.features --peer gpy --python $GPY_PYTHON --peer gpflow --python $GPFLOW_PYTHON"
EVALUATE = "python -m benchmarks.evaluate --core 1 --rounds 1 --peer-repeat 2 --peer gpy --python $GPY_PYTHON"
STRONG = "--ranks 1,2,4,8,16 --rounds 3 --repeat 7 -o"
EXPERIMENT = "mpiexec -n 2 python -m experiments."
LONG = {
    f"{FEATURES} --peer gpytorch --python $GPYTORCH_PYTHON": 600,
    "python -m benchmarks.evaluate": 900,
    f"{EVALUATE} --peer gpflow --python $GPFLOW_PYTHON": 3600,
    "python -m benchmarks.scaling --studies rows --rounds 3": 1800,
    "python -m benchmarks.scaling": 3600,
    "python -m benchmarks.stream rows --rounds 1": 3600,
    f"mpigp scaling strong {STRONG} study": 1800,
    f"mpigp scaling strong --model gplvm --rows 20000 --inducing 50 {STRONG} study-gplvm"
    " && mpigp scaling report study-gplvm && mpigp scaling report study-gplvm --interconnect ethernet-10g": 1800,
    "python -m benchmarks.iteration": 600,
    "python -m benchmarks.recovery --rounds 1 --modes recover abort": 1800,
    "python -m benchmarks.recovery --rounds 0": 1200,
    "python -m benchmarks.recovery --rounds 1 --iterations 24 --modes recover plain": 600,
    "python -m benchmarks.predict --rounds 5": 900,
    "python -m benchmarks.embed --python $GPY_PYTHON": 3600,
    "python -m benchmarks.digits ../shared/data/usps.h5": 3600,
    "python -m benchmarks.missing ../shared/data/oilflow.h5": 1800,
    f"{EXPERIMENT}oilflow ../shared/data/oilflow.h5 -o results": 600,
    "python -m benchmarks.record_oilflow --python $GPY_PYTHON ../shared/data/oilflow.h5 -o results/gpy.json": 1800,
    f"{EXPERIMENT}failures ../shared/data/oilflow.h5 -o results": 3600,
    "python -m experiments.scaling -o results": 900,
    f"{EXPERIMENT}flights ../shared/data/flights_nyc.h5 -o results": 7200,
    f"{EXPERIMENT}flights ../shared/data/flights_nyc.h5 -o results --sizes 70000 --inducing 500": 1800,
    f"{EXPERIMENT}digits ../shared/data/usps.h5 -o results": 1200,
    f"{EXPERIMENT}digits ../shared/data/usps.h5 -o results --inducing 50 --iterations 300": 1200,
    f"{EXPERIMENT}digits ../shared/data/usps.h5 -o results --inducing 20 --latent 5 --iterations 50": 1200,
    "python tests/mpi/campaign.py --runs 100": 7200,
}
# What CI runs, and would run itself in a test: the command, and its line in .ci/run.
BY_CI = {
    "pip install -e '.[mpi,test]' && python -m pytest": 'test_command=$(grep -E "^ +pip install .* pytest$" README.md)',
    "python -m pytest": 'bash -c "$test_command" | tee "$environment/tests.log"',
    "python -m pytest -n 2": 'export PYTEST_ADDOPTS="-n 2"',
    "ruff check . && ruff format --check . && mypy": "ruff check . && ruff format --check . && mypy",
    "mkdocs build --strict": "mkdocs build --strict",
    ".ci/run": "#!/usr/bin/env bash",
}


def kind(command: Block) -> str:
    """Return the kind of a command."""
    if command.text == ITSELF:
        return "itself"
    if command.text in BY_CI:
        return "ci"
    if INSTALLS.search(command.text):
        return "installs"
    if command.tag == "slurm" or SLURM.match(command.text):
        return "slurm"
    return "long" if command.text in LONG else "short"


def elsewhere(page: Path, command: Block) -> bool:
    """Return whether a command in a sentence is run where the same is a block, or stands in a sentence before."""
    places = [(each, other) for each in PAGES for other in commands(each) if other.text == command.text]
    return command.tag == SENTENCE and (
        any(other.tag != SENTENCE for _, other in places) or places[0] != (page, command)
    )


def of_kind(wanted: str) -> dict[str, tuple[Path, Block]]:
    """Return the commands of a kind, each with its page, by the place where they stand."""
    return {
        f"{page.name}:{command.line}:{number}": (page, command)
        for page in PAGES
        for number, command in enumerate(commands(page))
        if kind(command) == wanted and not elsewhere(page, command)
    }
