"""Show what mpigp and its peers have, by asking each: the table of the README.

    python -m benchmarks.features [--peer gpy|gpflow|gpytorch --python PATH] ...

Each peer is asked by the Python of its own environment (benchmarks/peers/peer_features.py), with one thread
and with two.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import mpigp

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 300  # seconds for one question
NAMES = {"gpy": "GPy", "gpflow": "GPflow", "gpytorch": "GPyTorch"}


def ask(peer: str, python: str) -> dict[str, Any]:
    """Return what a peer has, and whether its bits are the same with one thread and two."""
    script = ROOT / "benchmarks" / "peers" / "peer_features.py"
    found = []
    for threads in ("1", "2"):
        command = [python, str(script), peer, threads]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        if answer.returncode != 0:
            sys.exit(f"{peer}: {' '.join(command)} failed: {answer.stderr.strip().splitlines()[-1:]}")
        found.append(json.loads(answer.stdout.splitlines()[-1]))
    return found[0] | {"threads": found[0]["bits"] == found[1]["bits"]}


def ask_ourselves() -> dict[str, Any]:
    """Return the same of mpigp, and whether its bits are the same on one rank and two."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(20_000, 8))
    with tempfile.TemporaryDirectory() as name:
        data, params = Path(name) / "data.h5", Path(name) / "params.h5"
        with h5py.File(data, "w") as file:
            file["X"], file["Y"] = X, np.sin(X).sum(axis=1, keepdims=True) + 0.1 * rng.normal(size=(20_000, 1))
        with h5py.File(params, "w") as file:
            file.attrs["model"], file["Z"] = "regression", X[:100]
            file["beta"], file["kernel/variance"], file["kernel/alpha"] = 1.0, 1.0, np.ones(8)
        bits = []
        for number, (ranks, threads) in enumerate([(1, 1), (1, 2), (2, 1)]):
            output = Path(name) / f"{number}.h5"
            words = ["--ranks", ranks, "evaluate", data, "--params", params, "-o", output, "--threads", threads]
            subprocess.run([sys.executable, "-m", "mpigp", *map(str, words)], check=True, timeout=LIMIT,
                           stdout=subprocess.DEVNULL)  # fmt: skip
            with h5py.File(output) as file:
                bits.append([file[each][()].tobytes() for each in ("bound", "gradient/Z")])
    kinds = [mpigp.SparseGPRegression, mpigp.BayesianGPLVM]
    return {
        "version": mpigp.__version__,
        "finite": all(np.isfinite(np.frombuffer(each)).all() for each in bits[0]),
        "gplvm": mpigp.BayesianGPLVM.__name__,
        "communicator": all("comm" in inspect.signature(kind.__init__).parameters for kind in kinds),
        "threads": bits[0] == bits[1],
        "ranks": bits[0] == bits[2],
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return the answers as a table in Markdown."""
    rows = {
        "version": lambda each: each["version"],
        "sparse GP regression: bound and gradient": lambda each: "yes" if each["finite"] else "no",
        "Bayesian GPLVM": lambda each: "yes" if each["gplvm"] else "no",
        "models take an MPI communicator": lambda each: "yes" if each["communicator"] else "no",
        "the same bits on one thread and on two": lambda each: "yes" if each["threads"] else "no",
    }
    if all("ranks" in each for each in found.values()):  # peers are run in one process
        rows["the same bits on one rank and on two"] = lambda each: "yes" if each["ranks"] else "no"
    lines = ["| | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    lines += [f"| {what} | " + " | ".join(tell(each) for each in found.values()) + " |" for what, tell in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Ask all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], choices=list(NAMES), help="a program to ask too")
    parser.add_argument("--python", action="append", default=[], help="the Python that has it: one for each --peer")
    arguments = parser.parse_args()
    if len(arguments.peer) != len(arguments.python):
        parser.error("give one --python for each --peer")
    found = {"mpigp": ask_ourselves()}
    found |= {NAMES[peer]: ask(peer, python) for peer, python in zip(arguments.peer, arguments.python, strict=True)}
    print(table(found))


if __name__ == "__main__":
    main()
