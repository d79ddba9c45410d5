"""Initialise from several seeded data sets, and save what every rank has: `start.py FOLDER`, under mpiexec."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

from mpigp.chunks import Share, share
from mpigp.fit.start.inducing import greedy, kmeans, random_rows
from mpigp.fit.start.pca import pca, random_latent
from mpigp.fit.start.standardize import standardization
from mpigp.kernels.rbf import RBF
from mpigp.mpi.distributed_rows import DistributedRows

SIZES = {  # n: (d, q, m)
    1: (1, 1, 1),
    3: (2, 2, 2),  # fewer rows than ranks
    130: (3, 2, 9),  # three chunks: of five ranks some in the middle are empty
    1009: (12, 10, 30),  # a prime: nothing divides it
    1010: (510, 4, 5),  # so many columns that principal components come from a sketch
    21001: (5, 3, 40),  # more rows than the greedy choice looks at, and chunks of another length
}


def initialize(comm: MPI.Comm, n: int, d: int, q: int, m: int) -> dict[str, np.ndarray]:
    """Return the results by name; rows of all ranks together under the names that end in `rows`."""
    rng = np.random.default_rng([n, d])
    with threadpool_limits(1):  # else the bits of the product depend on the number of threads
        Y = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    Y = Y * np.linspace(0.1, 3.0, n)[:, None] + 100 * rng.normal(size=d)
    if n == 130:
        Y[:, 1], Y[:, 2] = Y[:, 0], 0.1  # one direction only
    start, stop = share(n, comm.rank, comm.size)
    own = Y[start:stop].copy()
    found, constant = standardization(DistributedRows(comm, n, own), "scale")
    own = found.apply(own)
    mu = pca(DistributedRows(comm, n, own), q)
    everywhere = {
        "mean": found.mean,
        "scale": found.scale,
        "constant": np.array(constant, int),
        "greedy": greedy(DistributedRows(comm, n, mu), m, RBF(), np.linspace(0.2, 1.5, q)),
        "kmeans": kmeans(DistributedRows(comm, n, mu), m, 1),
        "random_rows": random_rows(DistributedRows(comm, n, mu), m, 1),
    }
    for name, values in everywhere.items():
        assert len(set(comm.allgather(values.tobytes()))) == 1, f"{name} differs between ranks"
    local = {"pca_rows": mu, "random_latent_rows": random_latent(n, Share(start, stop), q, 2), "standardised_rows": own}
    return everywhere | {name: np.concatenate(comm.allgather(values)) for name, values in local.items()}


if __name__ == "__main__":
    world = MPI.COMM_WORLD
    for n, shape in SIZES.items():
        results = initialize(world, n, *shape)
        if world.rank == 0:
            np.savez(Path(sys.argv[1]) / f"{n}.npz", **results)
