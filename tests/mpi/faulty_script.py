"""Fit estimators as a script does while ranks are killed: `faulty_script.py FOLDER VICTIM AT`, under mpiexec.

VICTIM is a rank, `all`, or `none`; AT is the iteration at whose end it is killed. Every rank that reaches the end
writes its results to FOLDER/RANK.npz.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import mpigp

RANK = MPI.COMM_WORLD.rank


def main(folder: Path, victim: str, at: int) -> None:
    """Fit both models, and keep what they find."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(277, 2))
    Y = np.sin(X @ rng.normal(size=(2, 3))) + 0.05 * rng.normal(size=(277, 3))

    def kill(fit: Any) -> None:
        if victim in ("all", str(RANK)) and fit.iteration == at:
            os.kill(os.getpid(), signal.SIGKILL)

    both = {"max_iter": 30, "hold": 5, "checkpoint_every": 5, "resume": True, "callback": kill}
    gplvm = mpigp.BayesianGPLVM(
        8, latent=2, checkpoint=folder / "gplvm.h5", metrics=folder / "metrics.jsonl", **both
    ).fit(Y)
    regression = mpigp.SparseGPRegression(8, checkpoint=folder / "regression.h5", **both).fit(X, Y)
    results = {"embedding": gplvm.embedding_, "bounds": gplvm.trace_.bound, "back": gplvm.inverse_transform(X)}
    results |= {"Z": regression.Z_, "mean": regression.predict(X)}
    gplvm.save(folder / "saved.h5")
    np.savez(folder / f"{RANK}.npz", **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
