"""Names of types that many modules use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mpi4py.MPI import Comm as Comm
else:
    Comm = Any  # importing mpi4py initializes MPI, so a module must not do that for a name alone

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
