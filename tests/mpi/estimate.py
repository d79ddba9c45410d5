"""Use the estimators as a script does, and save what every rank has: `estimate.py FOLDER`, under mpiexec."""

import sys
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

import mpigp

N, NEW = 277, 1500  # five chunks, and more new rows than one batch of any kind


def results(folder: Path) -> dict[str, np.ndarray]:
    """Return all that the estimators find, from arrays and from datasets."""
    rng = np.random.default_rng(11)
    X, new = rng.normal(size=(N, 2)), rng.normal(size=(NEW, 2))
    weights = rng.normal(size=(2, 4))

    def outputs(X: np.ndarray) -> np.ndarray:
        return np.sin((X[:, :, None] * weights).sum(axis=1)) + 0.05 * rng.normal(size=(len(X), 4))

    Y, other = outputs(X), outputs(new)
    holes = other.copy()
    holes[::3, 1] = np.nan
    found = {}

    regression = mpigp.SparseGPRegression(8, max_iter=20, hold=5, random_state=1).fit(X, Y)
    found["mean"], found["std"] = regression.predict(new, return_std=True)
    found["Z"], found["alpha"] = regression.Z_, regression.alpha_
    found["numbers"] = np.array([regression.variance_, regression.beta_, regression.bound_, regression.n_iter_])
    found["score"] = np.array(regression.score(new, other))

    gplvm = mpigp.BayesianGPLVM(8, latent=2, max_iter=20, hold=5)
    found["fit_transform"] = gplvm.fit_transform(Y)
    found["S"], found["trace"] = gplvm.embedding_variance_, np.array(gplvm.trace_.bound)
    found["mu"], found["latent_std"] = gplvm.transform(holes, return_std=True)
    found["back"] = gplvm.inverse_transform(new)
    found["full"], found["full_std"] = gplvm.reconstruct(holes, return_std=True)
    found["one"] = gplvm.transform(other[:1])  # fewer rows than ranks
    found["bounds"] = gplvm.score_samples(other[:300])

    found["missing"] = mpigp.BayesianGPLVM(8, max_iter=10).fit_transform(holes[:N])

    path = folder / "model.h5"
    gplvm.save(path)
    found["loaded"] = mpigp.load(path).inverse_transform(new)
    found["random"] = mpigp.SparseGPRegression(8, max_iter=0, random_state=np.random.RandomState(2)).fit(X, Y).Z_
    if MPI.COMM_WORLD.rank == 0:
        with h5py.File(folder / "data.h5", "w") as file:
            file["X"], file["y"] = X, Y[:, 0]
    MPI.COMM_WORLD.Barrier()
    with h5py.File(folder / "data.h5") as file:
        found["datasets"] = mpigp.SparseGPRegression(8, max_iter=5).fit(file["X"], file["y"]).predict(file["X"])
    alone = mpigp.SparseGPRegression(8, max_iter=5, comm=MPI.COMM_SELF)
    found["alone"] = alone.fit(X, Y[:, 0]).predict(X)  # every rank for itself
    return found


if __name__ == "__main__":
    found = results(Path(sys.argv[1]))
    for name, values in found.items():
        same = {values.tobytes() for values in MPI.COMM_WORLD.allgather(values)}
        assert len(same) == 1, f"{name} differs between ranks"
    if MPI.COMM_WORLD.rank == 0:
        np.savez(Path(sys.argv[1]) / "found.npz", **found)
