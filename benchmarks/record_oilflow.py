"""Record what GPy learns of oil flow, for `python -m experiments.oilflow` where there is no GPy.

    python -m benchmarks.record_oilflow --python PATH [DATA] [-o experiments/recorded/gpy.json]

DATA are the oil-flow data of docs/experiments.md, or others; without them, the oil flow that the experiment makes. The
file keeps what it holds for other data.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mpi4py import MPI

from experiments import peer
from experiments.oilflow import PEER_SECONDS, Study
from experiments.source import Source
from mpigp.mpi.distributed_rows import DistributedRows, fingerprint


def main() -> None:
    """Run GPy and write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_oilflow", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("data", nargs="?", help="HDF5 file with /Y (default: oil flow, as the experiment makes it)")
    add("--python", required=True, help="the Python that has GPy")
    add("-o", "--output", type=Path, default=peer.RECORDED, help="JSON file to write")
    arguments = parser.parse_args()
    Y, _ = Source(arguments.data).oilflow(labelled=False)
    study = Study()
    found = peer.learn(arguments.python, Y, study.latent, study.inducing, study.peer_iterations, PEER_SECONDS)
    kept = json.loads(arguments.output.read_text("utf-8")) if arguments.output.exists() else {}
    kept[fingerprint(DistributedRows(MPI.COMM_SELF, len(Y), Y))] = found
    lines = ",\n".join(f"{json.dumps(data)}: {json.dumps(each)}" for data, each in sorted(kept.items()))
    arguments.output.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    print(f"GPy {found['version']}: bound {found['bound']:.1f} after {found['evaluations']} evaluations, "
          f"{found['seconds']:.1f} s: {found['status']}")  # fmt: skip


if __name__ == "__main__":
    main()
