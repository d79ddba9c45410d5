"""GPy's GPLVM of the same data: learned in an environment of its own, or recorded when it was."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.peer_process import ask
from mpigp.types import Floats

Peer = dict[str, Any]

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / "gpy.json"
DECIMALS = 4  # of latent means
MARKS = 100  # points of the trace that are kept, and the last


def learn(python: str, Y: Floats, latent: int, inducing: int, iterations: int, timeout: float) -> Peer:
    """Return what GPy finds in rows Y (n, d), centred here, on one thread.

    Returns
    -------
    version, latent, inducing, iterations, status : of GPy; what it was asked for; what its optimiser says of the end
    bound, evaluations, seconds : at the end
    trace : "bound" (the best so far), "evaluations" and "seconds" on the way
    alpha : (q,), ARD weights.   points : (n, 2), means in the two dimensions with the largest
    """
    with tempfile.TemporaryDirectory(prefix="mpigp-experiment-") as name:
        data = Path(name, "data.npz")
        np.savez(data, Y=Y - Y.mean(axis=0))
        options = {"--latent": latent, "--inducing": inducing, "--max-iter": iterations}
        words = [str(word) for option in options.items() for word in option]
        found = ask("GPy", [python, str(HERE / "gpy_fit.py"), str(data), *words], timeout)
    alpha, count = np.array(found["alpha"]), len(found["bound"])
    kept = sorted({*range(0, count, -(-count // MARKS)), count - 1})
    return {
        "version": found["version"], "latent": latent, "inducing": inducing, "iterations": iterations,
        "status": found["status"], "bound": found["bound"][-1], "evaluations": count,
        "seconds": found["total_seconds"],
        "trace": {
            "bound": [round(found["bound"][k], 2) for k in kept],
            "evaluations": [k + 1 for k in kept],
            "seconds": [round(found["seconds"][k], 2) for k in kept],
        },
        "alpha": alpha.tolist(),
        "points": np.round(np.array(found["mu"])[:, largest(alpha)], DECIMALS).tolist(),
    }  # fmt: skip


def recorded(data: str, latent: int, inducing: int) -> Peer | None:
    """Return what `python -m benchmarks.record_oilflow` recorded for data of this fingerprint; None where nothing."""
    found = json.loads(RECORDED.read_text("utf-8")).get(data)
    return found if found and (found["latent"], found["inducing"]) == (latent, inducing) else None


def largest(alpha: Floats) -> NDArray[np.intp]:
    """Return the two dimensions with the largest ARD weights, the largest first; or the one there is."""
    return np.argsort(-alpha, kind="stable")[:2]
